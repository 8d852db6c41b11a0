// Steps that verify drafts, on the emulated runtime: their rows have the bits of single steps, whether the
// step is issued plainly, recorded or replayed, and a scheduler that drafts gives the answers of one that
// does not. Products of matrices add up row by row here, as those of a GPU need not.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/gpu/emulation/runtime.h"
#include "tests/seed.h"
#include "tests/unit/decode_service/adversary_drafter.h"
#include "tests/unit/decode_service/random_requests.h"
#include "tests/unit/decode_service/speculation_rig.h"

namespace baton::gpu {
namespace {

constexpr char kModel[] = BATON_SOURCE_DIR "/models/baton-tiny";
constexpr int64_t kPrompt = 19;  // goes on inside a block
constexpr int64_t kDrafted = 6;  // and into the next one

using Logits = std::vector<std::vector<float>>;

class VerifyTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    emulation::StartMachine({.gpus = GetParam(), .seed = 7});
    auto loaded = engine::Engine::Load({.model_folder = kModel,
                                        .backend = "cuda",
                                        .threads = GetParam(),
                                        .tp = GetParam(),
                                        .kv_bytes = 1 << 20});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    engine_ = *std::move(loaded);
    std::mt19937 random(11);
    for (int64_t i = 0; i < kPrompt + kDrafted; ++i)
      tokens_.emplace_back(static_cast<int32_t>(3 + random() % 2000));
    for (auto& blocks : blocks_) blocks = *engine_->pool().Allocate(BlocksFor(kPrompt + kDrafted));
    for (size_t sequence = 0; sequence < 2; ++sequence) Step({Rows(sequence, 0, kPrompt, 0)});
    for (int64_t i = 0; i < kDrafted; ++i) expected_.push_back(Step({Rows(0, kPrompt + i, 1, 1)}).front());
    ASSERT_NE(expected_[0], expected_[1]);
  }
  void TearDown() override {
    if (engine_ == nullptr) return;
    for (const auto& blocks : blocks_) engine_->pool().Release(blocks);
  }

  // Rows of one of two sequences of the same tokens.
  engine::BatchRows Rows(size_t sequence, int64_t first, int64_t count, int64_t logit_rows) const {
    return {.tokens = std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
            .first_position = first,
            .blocks = blocks_[sequence],
            .logit_rows = logit_rows};
  }
  // Returns all wanted logits, row by row.
  Logits Step(const std::vector<engine::BatchRows>& rows) {
    engine::Batch batch;
    for (const engine::BatchRows& one : rows) batch.Add(one);
    const engine::StepResult result = engine_->Forward(batch, [](int) {});
    Logits logits;
    for (size_t s = 0; s < rows.size(); ++s) {
      for (int64_t row = 0; row < rows[s].logit_rows; ++row) {
        const auto values = result.logits(static_cast<int64_t>(s), row);
        logits.emplace_back(values.begin(), values.end());
      }
    }
    return logits;
  }
  Logits Expected(int64_t first, int64_t count) const {
    return {expected_.begin() + first, expected_.begin() + first + count};
  }

  std::unique_ptr<engine::Engine> engine_;
  std::vector<TokenId> tokens_;
  std::vector<BlockId> blocks_[2];
  Logits expected_;  // after each of the drafted tokens, computed one by one
};

TEST_P(VerifyTest, RowsHaveTheBitsOfSingleSteps) {
  // Plain, recorded and replayed; as many rows as other steps of single rows had.
  for (int round = 0; round < 4; ++round) {
    EXPECT_TRUE(Step({Rows(1, kPrompt, kDrafted, kDrafted)}) == Expected(0, kDrafted)) << "round " << round;
  }
  // Refused rows are computed again, from the row behind the last good one.
  EXPECT_TRUE(Step({Rows(1, kPrompt + 2, 3, 3)}) == Expected(2, 3));
}

TEST_P(VerifyTest, SoTheyHaveBesideOtherRows) {
  Logits expected = Expected(0, kDrafted);
  expected.push_back(expected_[1]);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(Step({Rows(1, kPrompt, kDrafted, kDrafted), Rows(0, kPrompt + 1, 1, 1)}) == expected)
        << "round " << round;
  }
  // Beside a piece of a prompt, no step is recorded.
  EXPECT_TRUE(Step({Rows(0, 0, kPrompt, 0), Rows(1, kPrompt, kDrafted, kDrafted)}) == Expected(0, kDrafted));
}

INSTANTIATE_TEST_SUITE_P(Ranks, VerifyTest, testing::Values(1, 2),
                         [](const auto& info) { return "tp" + std::to_string(info.param); });

TEST(VerifySchedulerTest, DraftsChangeNoAnswer) {
  using decode_service::Answer;
  const uint64_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  decode_service::RandomRequests random(seed, {.most_tokens = 15});
  std::vector<fleet::v1::DecodeRequest> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(random.Next());
  const auto run = [&](decode_service::Speculation speculation, uint64_t disturb) {
    emulation::StartMachine({.seed = 9});
    decode_service::SpeculationRig rig(
        {.model_folder = kModel, .backend = "cuda", .blocks = 40, .speculation = std::move(speculation)});
    return rig.Run(requests, disturb);
  };
  const std::vector<Answer> plain = run({}, 0);
  std::map<std::string, std::vector<TokenId>> right;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (const int32_t token : plain[i].tokens) right[requests[i].request_id()].emplace_back(token);
  }
  decode_service::Speculation adversaries;
  adversaries.make = [&](const decode_service::Sequence& sequence) {
    const size_t which = sequence.tokens.size() % decode_service::kAdversaries.size();
    std::vector<std::unique_ptr<decode_service::drafting::Drafter>> drafters;
    drafters.push_back(std::make_unique<decode_service::AdversaryDrafter>(
        decode_service::kAdversaries[which], 2048, right[sequence.request_id],
        static_cast<size_t>(sequence.prompt_tokens), sequence.tokens.size()));
    return drafters;
  };
  const std::vector<Answer> drafted = run(std::move(adversaries), seed);
  uint32_t accepted = 0, refused = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    decode_service::ExpectSameAnswer(requests[i], plain[i], drafted[i]);
    accepted += drafted[i].accepted;
    refused += drafted[i].drafted - drafted[i].accepted;
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace baton::gpu
