// A backend that draws gives tokens in place of logits, row by row as asked; where it can't, logits come.
#include <gtest/gtest.h>

#include "common/engine/engine.h"

namespace baton::engine {
namespace {

std::unique_ptr<Engine> Load(const std::string& backend, int tp) {
  auto engine = Engine::Load({.model_folder = BATON_SOURCE_DIR "/tests/golden/models/data/llama-mha",
                              .backend = backend,
                              .threads = tp,
                              .tp = tp,
                              .kv_bytes = 1 << 20});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Three sequences of five tokens each. Those with parameters ask for a token.
Batch MakeBatch(const std::vector<TokenId>& tokens, const std::vector<BlockId>& blocks,
                const std::vector<std::optional<sampling::Params>>& params) {
  Batch batch;
  for (size_t s = 0; s < params.size(); ++s) {
    batch.Add(std::span(tokens).subspan(s, 5), 0, std::span(blocks).subspan(s, 1), true);
    if (params[s].has_value()) batch.Draw(*params[s], 5);
  }
  return batch;
}

// On so many ranks.
class DrawTest : public testing::TestWithParam<int> {
 protected:
  const std::vector<TokenId> tokens_ = {TokenId(3), TokenId(14), TokenId(15), TokenId(9),
                                        TokenId(2), TokenId(6),  TokenId(5)};
  const sampling::Params plain_ = {.temperature = 1.5f, .top_k = 50, .top_p = 0.95f, .seed = 42};
  const sampling::Params penalised_ = {.repetition_penalty = 1.3f};
};

TEST_P(DrawTest, TokensWhereTheyWereAskedForLogitsElsewhere) {
  const auto engine = Load("reference", GetParam());
  ASSERT_NE(engine, nullptr);
  const auto blocks = *engine->pool().Allocate(3);
  const auto vocabulary = static_cast<size_t>(engine->config().vocabulary);
  const auto all = engine->Forward(MakeBatch(tokens_, blocks, {{}, {}, {}}), [](int) {});
  const std::vector<float> logits(all.begin(), all.end());
  for (int64_t row = 0; row < 3; ++row) EXPECT_FALSE(engine->drawn(row).has_value());

  const auto rest = engine->Forward(MakeBatch(tokens_, blocks, {{}, plain_, penalised_}), [](int) {});
  EXPECT_FALSE(engine->drawn(0).has_value()) << "nobody asked";
  EXPECT_FALSE(engine->drawn(2).has_value()) << "penalties are the host's";
  for (size_t row : {0u, 2u}) {
    EXPECT_TRUE(std::ranges::equal(rest.subspan(row * vocabulary, vocabulary),
                                   std::span(logits).subspan(row * vocabulary, vocabulary)));
  }
  ASSERT_TRUE(engine->drawn(1).has_value());
  sampling::Sampler sampler;
  const auto expected =
      sampler.Sample(std::span(logits).subspan(vocabulary, vocabulary), plain_, {}, 5, std::nullopt);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(engine->drawn(1), expected->token);

  engine->Forward(MakeBatch(tokens_, blocks, {{}}), [](int) {});
  EXPECT_FALSE(engine->drawn(1).has_value()) << "that was another step";
  engine->pool().Release(blocks);
}

// Three steps, each launched before the one before it has finished, against the same one by one.
TEST_P(DrawTest, AStepGoesOnFromTokensThatNobodyKnowsYet) {
  const auto engine = Load("reference", GetParam());
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->overlaps());
  const auto blocks = *engine->pool().Allocate(2);
  const std::vector<std::optional<sampling::Params>> both = {plain_, sampling::Params{.temperature = 0}};
  std::vector<std::vector<TokenId>> expected(2);
  for (int64_t step = 0; step < 3; ++step) {
    Batch batch;
    for (size_t s = 0; s < 2; ++s) {
      const auto own = std::span(blocks).subspan(s, 1);
      if (step == 0) {
        batch.Add(std::span(tokens_).subspan(s, 5), 0, own, true);
      } else {
        batch.Add(std::span(expected[s]).last(1), 4 + step, own, true);
      }
      batch.Draw(*both[s], static_cast<uint64_t>(5 + step));
    }
    engine->Forward(batch, [](int) {});
    for (size_t s = 0; s < 2; ++s) expected[s].push_back(*engine->drawn(static_cast<int64_t>(s)));
  }

  engine->Launch(MakeBatch(tokens_, blocks, both), [](int) {});
  for (int64_t step = 1; step <= 3; ++step) {
    if (step < 3) {
      Batch batch;  // the sequences change places
      for (size_t s : step == 1 ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1}) {
        batch.AddTaken(static_cast<int32_t>(step == 1 ? s : 1 - s), 4 + step,
                       std::span(blocks).subspan(s, 1));
        batch.Draw(*both[s], static_cast<uint64_t>(5 + step));
      }
      EXPECT_TRUE(batch.draws_all());
      engine->Launch(batch, [](int) {});
    }
    EXPECT_EQ(engine->Finish().empty(), step < 3) << "a step that was followed has no logits";
    for (size_t s = 0; s < 2; ++s) {
      const auto row = static_cast<int64_t>(step == 2 ? 1 - s : s);
      EXPECT_EQ(engine->drawn(row), expected[s][static_cast<size_t>(step - 1)]) << "step " << step;
    }
  }
  engine->pool().Release(blocks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DrawTest, testing::Values(1, 2), testing::PrintToStringParamName());

TEST(NoDrawTest, LogitsFromABackendThatDoesNotDraw) {
  const auto engine = Load("cpu", 1);
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->overlaps());
  const std::vector<TokenId> tokens(5, TokenId(9));
  const auto blocks = *engine->pool().Allocate(1);
  const auto asked = engine->Forward(MakeBatch(tokens, blocks, {{}}), [](int) {});
  const std::vector<float> logits(asked.begin(), asked.end());
  const auto again = engine->Forward(MakeBatch(tokens, blocks, {sampling::Params{.top_k = 3}}), [](int) {});
  EXPECT_FALSE(engine->drawn(0).has_value());
  EXPECT_TRUE(std::ranges::equal(again, logits));
  engine->pool().Release(blocks);
}

}  // namespace
}  // namespace baton::engine
