// The relay changes nothing: tokens and logits through router, prefill and decode processes are those of the
// engine alone, bit for bit, at several chunk sizes and precisions of KV, and with the prefix cached on
// neither, one and both sides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/solo.h"
#include "tests/e2e/fleet.h"

namespace baton::e2e {
namespace {

struct Relayed {
  std::string chunk;
  tensor::DType keys = tensor::DType::kF32, values = tensor::DType::kF32;
};

class RelayEqualityTest : public testing::TestWithParam<Relayed> {};

TEST_P(RelayEqualityTest, TokensAndLogitsAreThoseOfTheEngineAlone) {
  const Relayed& param = GetParam();
  const std::vector<std::string> flags = {"--chunk-tokens", param.chunk,
                                          "--token-budget", "512",
                                          "--key-dtype",    std::string(tensor::Name(param.keys)),
                                          "--value-dtype",  std::string(tensor::Name(param.values))};
  // prefix_affinity would let an idle decode worker prefill such short prompts itself.
  Fleet fleet({.prefill_flags = flags, .decode_flags = flags, .router_flags = {"--policy", "least_loaded"}});
  auto engine = engine::Engine::Load({.model_folder = kModel,
                                      .threads = 2,
                                      .kv_bytes = 64 << 20,
                                      .key_dtype = param.keys,
                                      .value_dtype = param.values})
                    .value();
  const uint32_t seed = 1234;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<int32_t> last;
  int shipped = 0, hit_here = 0, sampled = 0;
  for (int i = 0; i < BATON_EQUALITY_PROMPTS; ++i) {
    SCOPED_TRACE(i);
    std::vector<int32_t> prompt;
    // A third begin as the one before did: its prefix is cached on the decode worker, the prefill worker, or
    // both.
    if (i % 3 == 1) prompt.assign(last.begin(), last.begin() + static_cast<int64_t>(last.size() / 2));
    const size_t size = prompt.size() + 40 + random() % 160;
    while (prompt.size() < size) prompt.push_back(static_cast<int32_t>(20 + random() % 2000));
    last = prompt;
    v1::GenerateRequest request = TokenRequest(prompt, 8);
    sampling::Params params = {.temperature = 0};
    if (i % 2 == 1) {
      params = {.temperature = 0.8f, .top_k = 100, .top_p = 0.9f, .seed = static_cast<uint64_t>(i)};
      request.mutable_sampling()->set_temperature(params.temperature);
      request.mutable_sampling()->set_top_k(params.top_k);
      request.mutable_sampling()->set_top_p(params.top_p);
      request.mutable_sampling()->set_seed(params.seed);
      ++sampled;
    }
    // Not said means the model's default, which is not the engine's.
    request.mutable_sampling()->set_repetition_penalty(1);
    request.mutable_sampling()->set_min_p(0);
    if (i % 2 == 0) request.mutable_sampling()->set_top_k(0);
    if (i % 2 == 0) request.mutable_sampling()->set_top_p(1);
    std::vector<TokenId> ids;
    for (int32_t id : prompt) ids.emplace_back(id);
    const engine::SoloRun alone = engine::GenerateSolo(*engine, ids, params, 8, {}, 0).value();
    std::vector<int32_t> expected;
    for (TokenId token : alone.tokens) expected.push_back(token.value());
    for (int again = 0; again < 2; ++again) {
      const Answer answer = fleet.Generate(request);
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      EXPECT_EQ(answer.tokens, expected);
      EXPECT_EQ(answer.digests, alone.logits_digests) << "the logits differ in at least one bit";
      EXPECT_EQ(answer.end().usage().prompt_tokens(), prompt.size());
      EXPECT_EQ(answer.end().usage().completion_tokens(), 8u);
      shipped += answer.end().relay().shipped_blocks() > 0;
      hit_here += answer.end().usage().decode_cached_tokens() > 0;
    }
  }
  // The test would prove little if nothing had travelled or been cached.
  EXPECT_GE(shipped, BATON_EQUALITY_PROMPTS / 2);
  EXPECT_GE(hit_here, BATON_EQUALITY_PROMPTS);
  EXPECT_GE(sampled, BATON_EQUALITY_PROMPTS / 3);
  fleet.ExpectNothingHeld();
}

INSTANTIATE_TEST_SUITE_P(Chunks, RelayEqualityTest,
                         testing::Values(Relayed{"16"}, Relayed{"64"}, Relayed{"512"},
                                         Relayed{"64", tensor::DType::kI8, tensor::DType::kI8},
                                         Relayed{"16", tensor::DType::kI8, tensor::DType::kI4}),
                         [](const auto& info) {
                           return fmt::format("tokens{}_{}_{}", info.param.chunk,
                                              tensor::Name(info.param.keys), tensor::Name(info.param.values));
                         });

// Two decode workers and one prefill worker: what the first decode worker made the prefill worker compute,
// the second one gets from its cache.
TEST(PrefillCacheTest, APrefixCachedOnThePrefillWorkerAloneIsShippedAndChangesNothing) {
  Fleet fleet({.prefill = 1, .decode = 2, .router_flags = {"--policy", "round_robin"}});
  auto engine = engine::Engine::Load({.model_folder = kModel, .threads = 2, .kv_bytes = 64 << 20}).value();
  std::vector<int32_t> prompt;
  std::vector<TokenId> ids;
  for (int i = 0; i < 150; ++i) {
    prompt.push_back(20 + i * 7 % 1900);
    ids.emplace_back(prompt.back());
  }
  v1::GenerateRequest request = TokenRequest(prompt, 6);
  request.mutable_sampling()->set_repetition_penalty(1);
  const engine::SoloRun alone = engine::GenerateSolo(*engine, ids, {.temperature = 0}, 6, {}, 0).value();
  const Answer first = fleet.Generate(request);
  const Answer second = fleet.Generate(request);
  for (const Answer* answer : {&first, &second}) {
    ASSERT_TRUE(answer->status.ok()) << answer->status;
    EXPECT_EQ(answer->digests, alone.logits_digests);
    EXPECT_EQ(answer->end().relay().shipped_blocks(), 10u);
  }
  EXPECT_NE(first.end().relay().decode_worker(), second.end().relay().decode_worker());
  EXPECT_EQ(first.end().usage().prefill_cached_tokens(), 0u);
  EXPECT_EQ(second.end().usage().prefill_cached_tokens(), 144u);
}

}  // namespace
}  // namespace baton::e2e
