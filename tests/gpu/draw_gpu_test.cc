// Tokens drawn on a GPU are those that sampling::Sampler draws on the host from the same logits.
#include <cmath>

#include "common/kernels/cuda/launch.h"
#include "common/model/decoder.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/kernels/draw_check.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kSeed = 71;

TEST(DrawGpuTest, DrawsWhatTheSamplerDraws) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  for (int vocabulary : {1, 2, 33, 1000}) kernels::ExpectDrawsOfTheSampler(*kernels, vocabulary, 40, kSeed);
  kernels::ExpectDrawsOfTheSampler(*kernels, 50'257, 6, kSeed);
}

TEST(DrawGpuTest, LeavesVocabulariesThatItCantCountToTheHost) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  const kernels::RowDraw draw;
  TokenId token(7);
  EXPECT_FALSE(kernels->Draw({nullptr, 1, kernels::cuda::kMostDrawn + 1}, {&draw, 1}, {&token, 1}));
}

TEST(DrawGpuTest, AStepGivesTokensWhereTheyWereAskedForAndLogitsElsewhere) {
  // Without graphs: the first step of a graph is a plain one, and bits are compared here.
  const auto kernels = MakeKernels(false);
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  const auto decoder = model::Decoder::Load(Model(), *kernels);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kBF16, tensor::DType::kBF16), 4,
                                   kernels->memory());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto vocabulary = static_cast<size_t>((*decoder)->config().vocabulary);
  const std::vector<TokenId> tokens = {TokenId(30), TokenId(40), TokenId(50)};
  const std::vector<BlockId> blocks = {BlockId(2), BlockId(0), BlockId(3)};
  std::vector<kernels::SequenceRows> sequences;
  for (int64_t s = 0; s < 3; ++s) {
    sequences.push_back({s, 1, 0, std::span(blocks).subspan(static_cast<size_t>(s), 1)});
  }
  const std::vector<int64_t> wanted = {0, 1, 2};
  const auto forward = [&](const std::vector<kernels::RowDraw>& draws, std::span<TokenId> drawn) {
    std::vector<float> logits(3 * vocabulary, std::nanf(""));
    (*decoder)->Forward(
        {tokens, sequences, wanted, draws}, *store, logits, [](int) {}, drawn);
    return logits;
  };
  const std::vector<float> logits = forward({}, {});

  const sampling::Params params = {.temperature = 2, .top_k = 100, .top_p = 0.9f, .seed = kSeed};
  std::vector<kernels::RowDraw> draws;
  for (int32_t row : {0, 2}) {
    draws.push_back({.uniform = UniformAt(kSeed, static_cast<uint64_t>(row)),
                     .row = row,
                     .temperature = params.temperature,
                     .top_k = params.top_k,
                     .top_p = params.top_p});
  }
  std::vector<TokenId> drawn(2);
  const std::vector<float> rest = forward(draws, drawn);
  sampling::Sampler judge;
  for (size_t row = 0; row < 3; ++row) {
    const auto before = std::span(logits).subspan(row * vocabulary, vocabulary);
    const auto now = std::span(rest).subspan(row * vocabulary, vocabulary);
    if (row == 1) {
      EXPECT_TRUE(std::ranges::equal(now, before));
      continue;
    }
    EXPECT_TRUE(std::ranges::all_of(now, [](float logit) { return std::isnan(logit); })) << "row " << row;
    const auto expected = judge.Sample(before, params, {}, row, std::nullopt);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(drawn[row / 2], expected->token) << "row " << row;
  }
}

}  // namespace
}  // namespace baton::gpu
