// Several logit rows of one sequence in one step, as a step has that verifies drafted tokens: each is equal,
// bit by bit, to the row of a step that computes that token alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "engine/engine.h"

namespace baton::engine {
namespace {

constexpr int64_t kPrompt = 21;  // ends inside a block
constexpr int64_t kDrafted = 7;  // go on into the next one

struct VerifyCase {
  const char* backend;
  const char* model;
  int tp = 1;
  std::optional<tensor::DType> key_dtype = {}, value_dtype = {};
  model::WeightPrecision weights = model::WeightPrecision::kStored;
};

class VerifyRowsTest : public testing::TestWithParam<VerifyCase> {
 protected:
  static absl::StatusOr<std::unique_ptr<Engine>> Load(std::optional<model::WeightPrecision> drafts) {
    return Engine::Load(
        {.model_folder = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/" + GetParam().model,
         .backend = GetParam().backend,
         .threads = GetParam().tp,
         .tp = GetParam().tp,
         .kv_bytes = 1 << 20,
         .key_dtype = GetParam().key_dtype,
         .value_dtype = GetParam().value_dtype,
         .weights = GetParam().weights,
         .draft_weights = drafts});
  }
  void SetUp() override {
    // Weights in 4 bits have no copy in 4 bits.
    auto loaded = GetParam().weights == model::WeightPrecision::kInt4 ? Load(std::nullopt)
                                                                      : Load(model::WeightPrecision::kInt4);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    engine_ = *std::move(loaded);
    blocks_ = *engine_->pool().Allocate(2 * BlocksFor(kPrompt + kDrafted));
    for (int64_t i = 0; i < kPrompt + kDrafted; ++i) {
      tokens_.emplace_back(static_cast<int32_t>(3 + (i * 31) % (engine_->config().vocabulary - 3)));
    }
  }
  void TearDown() override {
    if (engine_ != nullptr) engine_->pool().Release(blocks_);
  }

  // The blocks of one of two sequences of the same tokens.
  std::span<const BlockId> Blocks(size_t sequence) const {
    const size_t half = blocks_.size() / 2;
    return std::span(blocks_).subspan(sequence * half, half);
  }
  BatchRows Rows(size_t sequence, int64_t first, int64_t count, int64_t logit_rows) const {
    return {.tokens = std::span(tokens_).subspan(first, count),
            .first_position = first,
            .blocks = Blocks(sequence),
            .logit_rows = logit_rows};
  }
  // The logits after each of the drafted tokens, computed one by one.
  std::vector<std::vector<float>> OneByOne(size_t sequence) {
    std::vector<std::vector<float>> rows;
    for (int64_t i = 0; i < kDrafted; ++i) {
      Batch batch;
      batch.Add(Rows(sequence, kPrompt + i, 1, 1));
      const auto logits = engine_->Forward(batch, [](int) {}).logits(0);
      rows.emplace_back(logits.begin(), logits.end());
    }
    return rows;
  }
  void Prefill(size_t sequence) {
    Batch batch;
    batch.Add(Rows(sequence, 0, kPrompt, 0));
    EXPECT_EQ(engine_->Forward(batch, [](int) {}).logit_rows(0), 0);
  }

  std::unique_ptr<Engine> engine_;
  std::vector<BlockId> blocks_;
  std::vector<TokenId> tokens_;
};

TEST_P(VerifyRowsTest, HaveTheBitsOfSingleSteps) {
  Prefill(0);
  Prefill(1);
  const auto expected = OneByOne(0);
  ASSERT_NE(expected[0], expected[1]);
  // Other sequences beside it: a chunk without logits before it, a decode row behind it.
  Batch batch;
  batch.Add(Rows(0, 0, kPrompt, 0));
  batch.Add(Rows(1, kPrompt, kDrafted, kDrafted));
  batch.Add(Rows(0, kPrompt, 1, 1));
  const StepResult result = engine_->Forward(batch, [](int) {});
  ASSERT_EQ(result.sequences(), 3);
  EXPECT_EQ(result.rows(0), kPrompt);
  EXPECT_EQ(result.logit_rows(0), 0);
  ASSERT_EQ(result.logit_rows(1), kDrafted);
  for (int64_t row = 0; row < kDrafted; ++row) {
    EXPECT_TRUE(std::ranges::equal(result.logits(1, row), expected[static_cast<size_t>(row)]))
        << "row " << row;
  }
  EXPECT_TRUE(std::ranges::equal(result.logits(2), expected[0]));
}

// The end of a prompt and the drafted tokens behind it: the last rows of a longer chunk.
TEST_P(VerifyRowsTest, MayBeTheLastRowsOfAChunk) {
  Prefill(0);
  const auto expected = OneByOne(0);
  Batch batch;
  batch.Add(Rows(1, 0, kPrompt + kDrafted, 3));
  const StepResult result = engine_->Forward(batch, [](int) {});
  ASSERT_EQ(result.logit_rows(0), 3);
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_TRUE(std::ranges::equal(result.logits(0, row), expected[static_cast<size_t>(kDrafted - 3 + row)]))
        << "row " << row;
  }
}

// KV of tokens that were not accepted is computed again, for the tokens that came instead.
TEST_P(VerifyRowsTest, RejectedRowsLeaveNothingBehind) {
  Prefill(0);
  const auto expected = OneByOne(0);
  Prefill(1);
  const std::vector<TokenId> right = tokens_;
  std::ranges::reverse(tokens_.begin() + kPrompt + 1, tokens_.end());
  ASSERT_NE(tokens_, right);
  Batch drafted;
  drafted.Add(Rows(1, kPrompt, kDrafted, kDrafted));
  const auto first = engine_->Forward(drafted, [](int) {}).logits(0, 0);
  EXPECT_TRUE(std::ranges::equal(first, expected[0])) << "the row before the first unequal token is good";
  tokens_ = right;
  Batch again;
  again.Add(Rows(1, kPrompt + 1, kDrafted - 1, kDrafted - 1));
  const StepResult result = engine_->Forward(again, [](int) {});
  for (int64_t row = 0; row < kDrafted - 1; ++row) {
    EXPECT_TRUE(std::ranges::equal(result.logits(0, row), expected[static_cast<size_t>(row + 1)]))
        << "row " << row;
  }
}

// Workers with and without such a copy exchange KV.
TEST_P(VerifyRowsTest, TheSecondCopyIsNoPartOfTheFingerprint) {
  const auto without = Load(std::nullopt);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE((*without)->drafts());
  EXPECT_EQ((*without)->fingerprint().Digest(), engine_->fingerprint().Digest());
}

// The second copy of the weights writes into the places behind what is computed; the step that verifies
// computes them anew, and what is behind those is not read.
TEST_P(VerifyRowsTest, DraftsOfTheSecondCopyLeaveNothingBehind) {
  if (!engine_->drafts()) GTEST_SKIP() << "there is none";
  Prefill(0);
  const auto expected = OneByOne(0);
  Prefill(1);
  bool differs = false;
  for (int64_t i = 0; i < kDrafted; ++i) {
    Batch draft;
    draft.Add(Rows(1, kPrompt + i, 1, 1));
    const StepResult drafted = engine_->ForwardDraft(draft);
    differs |= !std::ranges::equal(drafted.logits(0), expected[static_cast<size_t>(i)]);
  }
  EXPECT_TRUE(differs) << "they are other weights";
  // Fewer are verified than were drafted, and then the rest.
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, kDrafted - 3}}) {
    Batch batch;
    batch.Add(Rows(1, kPrompt + first, count, count));
    const StepResult result = engine_->Forward(batch, [](int) {});
    for (int64_t row = 0; row < count; ++row) {
      EXPECT_TRUE(std::ranges::equal(result.logits(0, row), expected[static_cast<size_t>(first + row)]))
          << "row " << first + row;
    }
  }
}

// A backend that draws does so from each row that it is asked for; the tokens are the sampler's.
TEST_P(VerifyRowsTest, AreDrawnFromOneByOne) {
  Prefill(0);
  const auto expected = OneByOne(0);
  Prefill(1);
  const sampling::Params params = {.temperature = 1.5f, .top_k = 50, .top_p = 0.95f, .seed = 42};
  Batch batch;
  batch.Add(Rows(1, kPrompt, kDrafted, kDrafted));
  for (int64_t row = 0; row < kDrafted; ++row) {
    if (row != 2) batch.Draw(params, kPrompt + row + 1);
  }
  const StepResult result = engine_->Forward(batch, [](int) {});
  sampling::Sampler sampler;
  for (int64_t row = 0; row < kDrafted; ++row) {
    const auto& logits = expected[static_cast<size_t>(row)];
    if (row == 2 || !engine_->overlaps()) {
      EXPECT_FALSE(result.drawn(0, row).has_value());
      EXPECT_TRUE(std::ranges::equal(result.logits(0, row), logits)) << "row " << row;
    } else {
      const auto position = static_cast<uint64_t>(kPrompt + row + 1);
      EXPECT_EQ(result.drawn(0, row), sampler.Sample(logits, params, {}, position, std::nullopt)->token)
          << "row " << row;
    }
  }
}

using tensor::DType;

INSTANTIATE_TEST_SUITE_P(
    Engines, VerifyRowsTest,
    testing::Values(VerifyCase{"cpu", "llama-mha"}, VerifyCase{"cpu", "llama-mha", 2},
                    VerifyCase{"cpu", "qwen3-window"}, VerifyCase{"cpu", "llama-gqa-tied"},
                    VerifyCase{"cpu", "mixtral"}, VerifyCase{"cpu", "gpt-oss"},
                    VerifyCase{"cpu", "qwen3", 1, DType::kBF16, DType::kBF16},
                    VerifyCase{"cpu", "llama-mha", 2, DType::kI8, DType::kI8},
                    VerifyCase{"cpu", "qwen3", 1, DType::kI4, DType::kI4},
                    VerifyCase{"cpu", "gpt-oss", 1, DType::kI8, DType::kI4},
                    VerifyCase{"cpu", "qwen2", 1, {}, {}, model::WeightPrecision::kInt8},
                    VerifyCase{"cpu", "llama-mha", 1, {}, {}, model::WeightPrecision::kInt4},
                    VerifyCase{"cpu", "qwen3-moe", 1, {}, {}, model::WeightPrecision::kInt4},
                    VerifyCase{"reference", "mistral-window"}, VerifyCase{"reference", "llama-mha", 2},
                    VerifyCase{"reference", "gpt-oss"},
                    VerifyCase{"reference", "qwen3", 1, DType::kI8, DType::kI4}),
    [](const auto& info) {
      const VerifyCase& one = info.param;
      std::string name = fmt::format("{}_{}_tp{}", one.backend, one.model, one.tp);
      if (one.key_dtype.has_value()) {
        name += fmt::format("_{}_{}", tensor::Name(*one.key_dtype), tensor::Name(*one.value_dtype));
      }
      if (one.weights == model::WeightPrecision::kInt8) name += "_int8";
      if (one.weights == model::WeightPrecision::kInt4) name += "_int4";
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST(BatchTest, OnlyOneRowOfASequenceWithPenaltiesIsDrawnPerStep) {
  PenaltySlots slots([](int32_t) { return true; });
  const auto slot = slots.Take();
  const std::vector<TokenId> tokens = {TokenId(4), TokenId(5), TokenId(6)};
  const std::vector<BlockId> blocks = {BlockId(0)};
  Batch batch;
  batch.Add({.tokens = tokens, .blocks = blocks, .logit_rows = 2});
  const auto draw = [&](int64_t position, size_t known) {
    batch.Draw({.presence_penalty = 1}, position,
               {.slot = slot.get(), .tokens = std::span(tokens).first(known), .prompt_tokens = 1});
  };
  draw(2, 2);
  draw(3, 3);
  ASSERT_EQ(batch.step_draws().rows.size(), 1u);
  EXPECT_EQ(batch.step_draws().rows[0].row, 0);
  EXPECT_EQ(batch.step_draws().seen.size(), 1u);
}

}  // namespace
}  // namespace baton::engine
