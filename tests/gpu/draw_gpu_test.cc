// Tokens drawn on a GPU are those that sampling::Sampler draws on the host from the same logits.
#include <cmath>

#include "engine/kernels/cuda/launch.h"
#include "engine/model/decoder.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/engine/kernels/draw_check.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kDrawSeed = 71;

TEST(DrawGpuTest, DrawsWhatTheSamplerDraws) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  for (int vocabulary : {1, 2, 33, 1000})
    kernels::ExpectDrawsOfTheSampler(*kernels, vocabulary, 40, kDrawSeed);
  kernels::ExpectDrawsOfTheSampler(*kernels, 50'257, 6, kDrawSeed);
}

TEST(DrawGpuTest, CountsWhatSequencesHaveSeen) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  for (int vocabulary : {2, 33, 1000}) {
    for (uint32_t seed = kDrawSeed; seed < kDrawSeed + 8; ++seed) {
      kernels::ExpectPenaltiesOfTheSampler(*kernels, vocabulary, 12, seed);
    }
  }
  // Rows that several blocks of threads share.
  kernels::ExpectPenaltiesOfTheSampler(*kernels, 9001, 4, kDrawSeed);
}

TEST(DrawGpuTest, ABorderBelongsToTheUpperToken) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  kernels::ExpectBordersOfTheUpperToken(*kernels);
}

TEST(DrawGpuTest, LeavesVocabulariesThatItCantCountToTheHost) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  EXPECT_TRUE(kernels->sampler()->CanSample(kernels::cuda::kMaxSampledVocabulary));
  EXPECT_FALSE(kernels->sampler()->CanSample(kernels::cuda::kMaxSampledVocabulary + 1));
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
        {tokens, sequences, wanted}, *store, logits, [](int) {}, {.rows = draws}, drawn);
    return logits;
  };
  const std::vector<float> logits = forward({}, {});

  const sampling::Params params = {.temperature = 2, .top_k = 100, .top_p = 0.9f, .seed = kDrawSeed};
  std::vector<kernels::RowDraw> draws;
  for (int32_t row : {0, 2}) {
    draws.push_back({.uniform = UniformAt(kDrawSeed, static_cast<uint64_t>(row)),
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

// Steps of a graph and before it, each launched before the tokens of the one before are awaited.
TEST(DrawGpuTest, AStepGoesOnFromTokensThatTheHostDoesNotKnowYet) {
  const auto kernels = MakeKernels();
  ASSERT_NE(kernels, nullptr) << "these tests need a GPU";
  const auto decoder = model::Decoder::Load(Model(), *kernels);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  ASSERT_TRUE((*decoder)->draws());
  auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kBF16, tensor::DType::kBF16), 3,
                                   kernels->memory());
  ASSERT_TRUE(store.ok()) << store.status();
  constexpr size_t kSequences = 3;
  constexpr int64_t kSteps = 6;
  const std::vector<BlockId> blocks = {BlockId(2), BlockId(0), BlockId(1)};
  const std::vector<TokenId> first = {TokenId(30), TokenId(40), TokenId(50)};
  const std::vector<int64_t> wanted = {0, 1, 2};
  std::vector<float> logits(kSequences * static_cast<size_t>((*decoder)->config().vocabulary));
  // Runs the steps; `overlap`: a step is launched before the one before it has finished.
  const auto run = [&](bool overlap) {
    std::vector<std::vector<TokenId>> tokens = {first};
    std::vector<TokenId> drawn(kSequences);
    const auto finish = [&] {
      (*decoder)->Finish(logits, drawn);
      tokens.push_back(drawn);
    };
    for (int64_t step = 0; step < kSteps; ++step) {
      const bool unknown = overlap && step > 0;
      std::vector<kernels::SequenceRows> sequences;
      std::vector<kernels::RowDraw> draws;
      std::vector<kernels::TakenToken> taken;
      for (int32_t s = 0; s < static_cast<int32_t>(kSequences); ++s) {
        sequences.push_back({s, 1, step, std::span(blocks).subspan(static_cast<size_t>(s), 1)});
        draws.push_back(
            {.uniform = UniformAt(kDrawSeed, static_cast<uint64_t>(kSequences * step + s)), .row = s});
        if (unknown) taken.push_back({.row = s, .draw = s});
      }
      const std::vector<TokenId> none(kSequences, TokenId(0));
      (*decoder)->Launch({unknown ? none : tokens.back(), sequences, wanted, taken}, *store, logits,
                         [](int) {}, {.rows = draws});
      if (!overlap || step > 0) finish();
    }
    if (overlap) finish();
    return tokens;
  };
  const auto overlapped = run(true);
  EXPECT_EQ(overlapped, run(false));
  EXPECT_NE(overlapped[1], overlapped[2]);
}

}  // namespace
}  // namespace baton::gpu
