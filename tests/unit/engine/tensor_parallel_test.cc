// A model on N ranks against the same model on one, on CPU. A sum over ranks is rounded in another place than
// one long sum, so logits are equal within a tolerance: 2e-4 for models of float32 weights whose logits reach
// 20, as against transformers (decoder_golden_test). Greedy tokens are equal, because these models' two
// likeliest tokens lie further apart than that: the test checks it, step by step. Sums of int8 weights are
// exact, and there every bit is equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace baton::engine {
namespace {

using testing::HasSubstr;

constexpr float kTolerance = 2e-4f;

std::unique_ptr<Engine> LoadRanks(const std::string& model, int tp, const std::string& backend = "cpu",
                                  model::WeightPrecision weights = model::WeightPrecision::kStored) {
  auto engine =
      Engine::Load({.model_folder = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/" + model,
                    .backend = backend,
                    .threads = tp,
                    .tp = tp,
                    .kv_bytes = 1 << 20,
                    .weights = weights});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

struct Outcome {
  std::vector<std::vector<float>> logits;  // of the prompt's last position and of each step
  std::vector<TokenId> tokens;
  std::vector<std::vector<std::byte>> kv;  // per layer, all blocks
};

// Two sequences in one batch: one in chunks, one decoding beside it, then both decoding.
Outcome Generate(Engine& engine, uint32_t seed, const std::vector<TokenId>* force = nullptr) {
  std::mt19937 random(seed);
  const auto vocabulary = static_cast<int32_t>(engine.config().vocabulary);
  std::vector<std::vector<TokenId>> tokens(2);
  for (size_t s = 0; s < tokens.size(); ++s) {
    for (size_t i = 0; i < 21 + 8 * s; ++i) {
      tokens[s].emplace_back(std::uniform_int_distribution<int32_t>(0, vocabulary - 1)(random));
    }
  }
  constexpr size_t kSteps = 6;
  std::vector<std::vector<BlockId>> blocks;
  for (const auto& t : tokens) {
    blocks.push_back(*engine.pool().Allocate(BlocksFor(static_cast<int64_t>(t.size() + kSteps))));
  }
  std::vector<size_t> computed(tokens.size());
  Outcome run;
  Batch batch;
  int layers_done = 0;
  const auto layer_done = [&](int layer) { EXPECT_EQ(layer, layers_done++); };
  while (run.tokens.size() < 2 * kSteps) {
    batch.Clear();
    std::vector<size_t> finishing;
    for (size_t s = 0; s < tokens.size(); ++s) {
      const size_t rest = tokens[s].size() - computed[s];
      if (rest == 0) continue;
      const size_t rows = std::min<size_t>(rest, s == 0 ? 64 : 5);
      batch.Add({.tokens = std::span(tokens[s]).subspan(computed[s], rows),
                 .first_position = static_cast<int64_t>(computed[s]),
                 .blocks = blocks[s],
                 .logit_rows = rows == rest ? 1 : 0});
      computed[s] += rows;
      if (rows == rest) finishing.push_back(s);
    }
    layers_done = 0;
    const std::span<const float> logits = engine.Forward(batch, layer_done).logits();
    EXPECT_EQ(layers_done, engine.config().layers);
    for (size_t i = 0; i < finishing.size(); ++i) {
      const auto row = logits.subspan(i * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary));
      run.logits.emplace_back(row.begin(), row.end());
      const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      const TokenId next = force != nullptr ? (*force)[run.tokens.size()] : TokenId(best);
      run.tokens.emplace_back(best);
      if (tokens[finishing[i]].size() < 21 + 8 * finishing[i] + kSteps) tokens[finishing[i]].push_back(next);
    }
  }
  for (int layer = 0; layer < engine.config().layers; ++layer) {
    std::vector<std::byte>& bytes = run.kv.emplace_back();
    for (const auto& list : blocks) {
      for (BlockId block : list) {
        std::vector<std::span<std::byte>> pieces;
        engine.store().AppendPieces(block, layer, 1, pieces);
        for (const auto piece : pieces) {
          const size_t at = bytes.size();
          bytes.resize(at + piece.size());
          const auto size = static_cast<int64_t>(piece.size());
          EXPECT_TRUE(engine.store().memory().Download(piece.data(), bytes.data() + at, size).ok());
        }
      }
    }
  }
  for (const auto& list : blocks) engine.pool().Release(list);
  return run;
}

struct Case {
  const char* model;
  int tp;
};

class TensorParallelTest : public testing::TestWithParam<Case> {};

TEST_P(TensorParallelTest, GivesTheTokensOfOneRank) {
  constexpr uint32_t kSeed = 31;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  // In float32, whose sums over ranks differ least.
  const auto whole = LoadRanks(GetParam().model, 1, "cpu", model::WeightPrecision::kF32);
  const auto split = LoadRanks(GetParam().model, GetParam().tp, "cpu", model::WeightPrecision::kF32);
  ASSERT_TRUE(whole != nullptr && split != nullptr);
  EXPECT_EQ(split->store().layout(), whole->store().layout());
  const Outcome expected = Generate(*whole, kSeed);
  // Fed with the tokens of one rank, so that every step is compared, whatever came before.
  const Outcome got = Generate(*split, kSeed, &expected.tokens);
  ASSERT_EQ(got.logits.size(), expected.logits.size());
  for (size_t step = 0; step < got.logits.size(); ++step) {
    float worst = 0;
    for (size_t i = 0; i < got.logits[step].size(); ++i) {
      const float difference = std::abs(got.logits[step][i] - expected.logits[step][i]);
      worst = difference <= worst ? worst : difference;
    }
    EXPECT_LE(worst, kTolerance) << "step " << step;
    std::vector<float> sorted = expected.logits[step];
    std::ranges::sort(sorted, std::greater());
    ASSERT_GT(sorted[0] - sorted[1], 2 * kTolerance)
        << "step " << step << ": too close to call, take another seed";
  }
  EXPECT_EQ(got.tokens, expected.tokens);
  // Layer 0's KV follows from embeddings, which are summed with zeros, and from whole rows of weights: the
  // same bits, in the order of an undivided block. Later layers have seen sums over ranks.
  EXPECT_EQ(got.kv[0], expected.kv[0]);
  EXPECT_NE(got.kv.back(), std::vector<std::byte>(got.kv.back().size()));
}

TEST_P(TensorParallelTest, GivesTheBitsOfOneRankWithIntegerWeights) {
  constexpr uint32_t kSeed = 32;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  for (const auto precision : {model::WeightPrecision::kInt8, model::WeightPrecision::kInt4}) {
    SCOPED_TRACE(Name(precision));
    const auto whole = LoadRanks(GetParam().model, 1, "cpu", precision);
    const auto split = LoadRanks(GetParam().model, GetParam().tp, "cpu", precision);
    ASSERT_TRUE(whole != nullptr && split != nullptr);
    EXPECT_EQ(protocol::FirstDifference(whole->fingerprint(), split->fingerprint()), std::nullopt);
    EXPECT_EQ(split->fingerprint().Digest(), whole->fingerprint().Digest());
    const Outcome expected = Generate(*whole, kSeed), got = Generate(*split, kSeed);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_TRUE(got.logits == expected.logits);
    EXPECT_TRUE(got.kv == expected.kv);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallelTest,
                         testing::Values(Case{"llama-mha", 2}, Case{"llama-mha", 4}, Case{"llama-bias", 2},
                                         Case{"llama-gqa-tied", 2}, Case{"mistral-window", 2},
                                         Case{"qwen2", 2}, Case{"qwen3-window", 2}, Case{"seed-oss", 2},
                                         Case{"arcee", 2}, Case{"ministral3", 2}, Case{"mistral3-tied", 2},
                                         Case{"hunyuan-v1", 2}, Case{"ernie4-5-defaults", 2},
                                         Case{"phi3-long", 2}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           std::ranges::replace(name, '-', '_');
                           return name + "_tp" + std::to_string(info.param.tp);
                         });

TEST(TensorParallelEngineTest, TheFingerprintTellsRanksApartWhereBitsArePromised) {
  const auto one = LoadRanks("llama-mha", 1), two = LoadRanks("llama-mha", 2);
  EXPECT_EQ(one->fingerprint().numerics, "cpu-f32/1");
  EXPECT_EQ(two->fingerprint().numerics, "cpu-f32/1+tp2");
  EXPECT_EQ(two->fingerprint().weights, one->fingerprint().weights);
  EXPECT_THAT(*protocol::FirstDifference(one->fingerprint(), two->fingerprint()), HasSubstr("numerics"));
}

// Shards of arcee's matrices cut blocks of 32 columns.
TEST(TensorParallelEngineTest, ProductsOfBFloat16StayCloseOverRanks) {
  const auto one = LoadRanks("arcee", 1), two = LoadRanks("arcee", 2);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_EQ(one->fingerprint().numerics, "cpu-bf16x32/1+cpu-f32/1+cpu-kv-bf16x32/1");
  EXPECT_EQ(two->fingerprint().numerics, "cpu-bf16x32/1+cpu-f32/1+cpu-kv-bf16x32/1+tp2");
  constexpr uint32_t kSeed = 32;
  const Outcome expected = Generate(*one, kSeed), got = Generate(*two, kSeed, &expected.tokens);
  ASSERT_EQ(got.logits.size(), expected.logits.size());
  double error = 0, size = 0;
  for (size_t step = 0; step < got.logits.size(); ++step) {
    for (size_t i = 0; i < got.logits[step].size(); ++i) {
      error += std::pow(double{got.logits[step][i]} - expected.logits[step][i], 2);
      size += std::pow(double{expected.logits[step][i]}, 2);
    }
  }
  EXPECT_LT(std::sqrt(error / size), 0.01);
}

TEST(TensorParallelEngineTest, TheFingerprintTellsPrecisionsOfWeightsApart) {
  using model::WeightPrecision;
  for (const char* backend : {"cpu", "reference"}) {
    const auto stored = LoadRanks("llama-mha", 1, backend),
               narrow = LoadRanks("llama-mha", 1, backend, WeightPrecision::kBF16),
               integers = LoadRanks("llama-mha", 1, backend, WeightPrecision::kInt8),
               halves = LoadRanks("llama-mha", 1, backend, WeightPrecision::kInt4);
    EXPECT_NE(halves->fingerprint().weights, integers->fingerprint().weights);
    EXPECT_THAT(*protocol::FirstDifference(stored->fingerprint(), integers->fingerprint()),
                HasSubstr("weights"));
    EXPECT_THAT(*protocol::FirstDifference(stored->fingerprint(), narrow->fingerprint()),
                HasSubstr("weights"));
    EXPECT_NE(integers->fingerprint().weights, narrow->fingerprint().weights);
    EXPECT_NE(stored->fingerprint().Digest(), integers->fingerprint().Digest());
  }
  EXPECT_EQ(LoadRanks("llama-mha", 1, "cpu", WeightPrecision::kInt8)->fingerprint().numerics,
            "cpu-f32/1+cpu-i8/2+cpu-kv-bf16x32/1");
  EXPECT_LT(LoadRanks("llama-mha", 1, "cpu", WeightPrecision::kInt8)->weight_bytes(),
            LoadRanks("llama-mha", 1, "cpu", WeightPrecision::kBF16)->weight_bytes());
}

TEST(TensorParallelEngineTest, WhatIsStoredInTheWantedPrecisionIsNoConversion) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";  // in bfloat16
  const auto stored = Engine::Load({.model_folder = folder}),
             narrow = Engine::Load({.model_folder = folder, .weights = model::WeightPrecision::kBF16});
  ASSERT_TRUE(stored.ok() && narrow.ok());
  EXPECT_EQ(protocol::FirstDifference((*stored)->fingerprint(), (*narrow)->fingerprint()), std::nullopt);
}

TEST(TensorParallelEngineTest, EachRankHoldsItsPartOfTheWeights) {
  const auto one = LoadRanks("llama-mha", 1, "reference"), four = LoadRanks("llama-mha", 4, "reference");
  // Norms are with every rank, all else is with one.
  const model::ModelConfig& config = one->config();
  const int64_t norms = (2 * config.layers + 1) * config.hidden * 4;
  EXPECT_EQ(four->weight_bytes(), one->weight_bytes() + 3 * norms);
}

TEST(TensorParallelEngineTest, RefusesWhatCantBeSplitAndSaysWhatCan) {
  const auto engine = Engine::Load(
      {.model_folder = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/llama-mha", .tp = 3});
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("--tp 3: this model has 4 heads"));
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("over 1, 2, 4 ranks"));
}

TEST(TensorParallelEngineTest, RefusesGpusThatDoNotFitTheRanks) {
  const auto refused = [](const std::string& backend, int tp, std::vector<int> devices) {
    return std::string(
        Engine::Load({.model_folder = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/llama-mha",
                      .backend = backend,
                      .tp = tp,
                      .devices = std::move(devices)})
            .status()
            .message());
  };
  EXPECT_THAT(refused("cpu", 1, {0}), HasSubstr("--devices names GPUs, and --backend is cpu"));
  EXPECT_THAT(refused("cuda", 2, {0}), HasSubstr("--devices names 1 GPUs, and --tp is 2"));
  EXPECT_THAT(refused("cuda", 1, {0, 1}), HasSubstr("--devices names 2 GPUs, and --tp is 1"));
  EXPECT_THAT(refused("cuda", 2, {3, 3}), HasSubstr("--devices names GPU 3 twice"));
}

TEST(TensorParallelEngineTest, AllThatIsLeftIsForGpus) {
  const auto engine = Engine::Load(
      {.model_folder = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/llama-mha", .kv_bytes = 0});
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("give a size"));
}

}  // namespace
}  // namespace baton::engine
