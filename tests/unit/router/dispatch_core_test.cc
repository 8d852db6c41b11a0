// The dispatch core over plain states, without a fleet, a clock or a thread.
#include "router/dispatch/dispatch_core.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/base/ids.h"

namespace baton::router {
namespace {

using placement::Selection;
using placement::WorkerState;

const absl::Time kNow = absl::UnixEpoch() + absl::Seconds(100);

std::vector<kv::BlockHash> Chain(int64_t blocks) {
  return kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")),
                       std::vector<TokenId>(blocks * kBlockTokens, TokenId(7)));
}

// Selects the first worker of each kind, and predicts what the test says.
class FirstOfAll final : public placement::Policy {
 public:
  std::string_view name() const override { return "first_of_all"; }
  placement::Selection Select(const Request&, const placement::Pools& pools) override {
    placement::Selection selection;
    if (!pools.prefill.empty()) selection.prefill = {0};
    selection.predicted = predicted;
    selection.uncached_tokens = uncached_tokens;
    return selection;
  }

  placement::Prediction predicted;
  int64_t uncached_tokens = 0;
};

class DispatchCoreTest : public ::testing::Test {
 protected:
  DispatchCoreTest() {
    decode_.resize(1);
    prefill_.resize(2);
    for (WorkerState* state : {&decode_[0], &prefill_[0], &prefill_[1]}) {
      state->slot = *index_.Join();
      state->serves_fetches = true;
    }
  }

  void Trust() {
    for (int i = 0; i < admission::TtftDeadlines::kOutcomesToTrust; ++i) {
      core_.deadlines().Observe(1, 1, core_.deadlines().trusted());
    }
  }

  index::PrefixIndex index_{{}};
  FirstOfAll* const policy_ = new FirstOfAll;
  DispatchCore core_{std::unique_ptr<placement::Policy>(policy_), absl::Seconds(2), &index_};
  std::vector<WorkerState> decode_;
  std::vector<WorkerState> prefill_;
};

TEST_F(DispatchCoreTest, MatchTellsWhatWorkersHoldAndWhatTheyHaveSaidThemselves) {
  const auto chain = Chain(8);
  index_.Store(decode_[0].slot, std::span(chain).first(3));
  index_.Store(prefill_[0].slot, std::span(chain).first(4));
  index_.Speculate(prefill_[0].slot, std::span(chain).subspan(4, 2), kNow);
  index_.Store(prefill_[1].slot, std::span(chain).first(2));
  prefill_[1].serves_fetches = false;
  core_.Match(chain, decode_, prefill_);
  EXPECT_EQ(decode_[0].matched_blocks, 3);
  EXPECT_EQ(decode_[0].confirmed_blocks, 3);
  EXPECT_EQ(prefill_[0].matched_blocks, 6);
  EXPECT_EQ(prefill_[0].confirmed_blocks, 4) << "the other two are expected, and not confirmed";
  EXPECT_EQ(prefill_[1].matched_blocks, 2);
  EXPECT_EQ(prefill_[1].confirmed_blocks, 0) << "it serves no fetches";
  EXPECT_EQ(core_.matches().longest, 6u);
}

// Whatever the policy: a prompt whose log probabilities are told is computed where it is answered.
TEST_F(DispatchCoreTest, APromptThatHasToBeComputedHereGetsNoPrefillWorker) {
  EXPECT_TRUE(core_.Select({.prompt_tokens = 100}, {decode_, prefill_}).prefill_slot.has_value());
  const Selection here = core_.Select({.prompt_tokens = 100, .prefill_here = true}, {decode_, prefill_});
  EXPECT_FALSE(here.prefill_slot.has_value());
  EXPECT_EQ(here.uncached_tokens, 100);
}

TEST_F(DispatchCoreTest, MatchTellsWhatIsOnDisk) {
  const auto chain = Chain(8);
  decode_[0].disk_slot = *index_.Join();
  index_.Store(decode_[0].slot, std::span(chain).first(3));
  index_.Store(*decode_[0].disk_slot, std::span(chain).first(7));
  core_.Match(chain, decode_, prefill_);
  EXPECT_EQ(decode_[0].matched_blocks, 3);
  EXPECT_EQ(decode_[0].disk_blocks, 7);
  EXPECT_EQ(prefill_[0].disk_blocks, 0);
}

// A prompt that a decode worker computes would reuse the blocks that it has confirmed itself, also where
// nothing is fetched.
TEST_F(DispatchCoreTest, ConfirmedBlocksAreKnownOfEveryDecodeWorker) {
  const auto chain = Chain(8);
  decode_.resize(40);
  for (size_t i = 1; i < decode_.size(); ++i) decode_[i].slot = *index_.Join();
  for (WorkerState& state : decode_) {
    state.serves_fetches = false;
    index_.Store(state.slot, std::span(chain).first(3));
    index_.Speculate(state.slot, std::span(chain).subspan(3), kNow);
  }
  core_.Match(chain, decode_, prefill_);
  for (const WorkerState& state : decode_) {
    EXPECT_EQ(state.matched_blocks, 8);
    EXPECT_EQ(state.confirmed_blocks, 3);
  }
}

TEST_F(DispatchCoreTest, WithoutAnIndexNobodyHoldsAnything) {
  DispatchCore core(std::make_unique<FirstOfAll>(), absl::Seconds(2), nullptr);
  core.Match(Chain(4), decode_, prefill_);
  EXPECT_TRUE(core.Expect(core.Select({.prompt_tokens = 64}, {decode_, prefill_}), Chain(4), kNow).empty());
  EXPECT_EQ(decode_[0].matched_blocks, 0);
}

TEST_F(DispatchCoreTest, WhatIsBookedIsWhatTheBetterOfTheTwoLacks) {
  const Request request = {.prompt_tokens = 100};
  decode_[0].matched_blocks = 2;
  prefill_[0].matched_blocks = 5;
  Selection selection = core_.Select(request, {decode_, prefill_});
  EXPECT_EQ(selection.decode_slot, decode_[0].slot);
  EXPECT_EQ(selection.prefill_slot, prefill_[0].slot);
  EXPECT_EQ(selection.decode_matched, 2);
  EXPECT_EQ(selection.prefill_matched, 5);
  EXPECT_EQ(selection.uncached_tokens, 100 - 5 * kBlockTokens);
  EXPECT_EQ(selection.cached_tokens, 5 * kBlockTokens);
  EXPECT_FALSE(selection.trusted);
  prefill_[0].matched_blocks = 7;
  EXPECT_EQ(core_.Select(request, {decode_, prefill_}).uncached_tokens, 1) << "one token is always computed";
  policy_->uncached_tokens = 30;
  selection = core_.Select(request, {decode_, {}});
  EXPECT_EQ(selection.prefill_slot, std::nullopt) << "computed on the decode worker";
  EXPECT_EQ(selection.prefill_matched, 0);
  EXPECT_EQ(selection.uncached_tokens, 30) << "the policy says";
  EXPECT_EQ(selection.cached_tokens, 70);
}

TEST_F(DispatchCoreTest, PredictionsCountOnceTheyAreTrusted) {
  const placement::Prediction predicted = {.wait = 1, .prefill = 3};
  Request request = {.arrival = kNow};
  EXPECT_EQ(core_.Estimate(request, predicted).ttft, absl::ZeroDuration());
  Trust();
  const admission::FirstToken first = core_.Estimate(request, predicted);
  EXPECT_EQ(first.ttft, absl::Seconds(4));
  EXPECT_EQ(first.queue, absl::Seconds(1));
  EXPECT_EQ(first.due, kNow + absl::Seconds(6)) << "twice what it takes by itself";
  request.deadline = kNow + absl::Seconds(1);
  EXPECT_EQ(core_.Estimate(request, predicted).due, kNow + absl::Seconds(1));
  EXPECT_TRUE(core_.Select({.prompt_tokens = 1}, {decode_, prefill_}).trusted);
}

TEST_F(DispatchCoreTest, ATooLateFirstTokenIsJudgedWhileSomethingRuns) {
  admission::FirstToken first = {.due = kNow + absl::Seconds(2), .ttft = absl::Seconds(3)};
  EXPECT_TRUE(DispatchCore::TooLate(first, kNow, /*busy=*/true));
  EXPECT_FALSE(DispatchCore::TooLate(first, kNow, /*busy=*/false)) << "it is tried";
  EXPECT_FALSE(DispatchCore::TooLate(first, kNow + absl::Seconds(2), true)) << "late already";
  first.due = kNow + absl::Seconds(3);
  EXPECT_FALSE(DispatchCore::TooLate(first, kNow, true)) << "in time";
}

TEST_F(DispatchCoreTest, BothSelectedWorkersAreExpectedToHoldThePromptForAWhile) {
  const auto chain = Chain(8);
  index_.Store(decode_[0].slot, std::span(chain).first(2));
  core_.Match(chain, decode_, prefill_);
  policy_->predicted.prefill = 2.5;  // so they are expected for 10 s
  const Selection selection = core_.Select({.prompt_tokens = 8 * kBlockTokens + 5}, {decode_, prefill_});
  EXPECT_TRUE(core_.Expect(selection, chain, kNow).empty());
  core_.Match(chain, decode_, prefill_);
  EXPECT_EQ(decode_[0].matched_blocks, 8);
  EXPECT_EQ(decode_[0].confirmed_blocks, 2);
  EXPECT_EQ(prefill_[0].matched_blocks, 8);
  EXPECT_EQ(prefill_[0].confirmed_blocks, 0);
  EXPECT_EQ(prefill_[1].matched_blocks, 0) << "not selected";
  EXPECT_EQ(index_.stats().speculative, 6 + 8) << "what a worker holds already is no speculation";
  while (index_.Maintain(kNow + absl::Seconds(10))) {
  }
  core_.Match(chain, decode_, prefill_);
  EXPECT_EQ(decode_[0].matched_blocks, 2);
  EXPECT_EQ(prefill_[0].matched_blocks, 0);
}

TEST_F(DispatchCoreTest, WhatIsNotEnteredAtOnceIsLeftForLater) {
  const auto chain = Chain(8);
  index_.Store(decode_[0].slot, std::span(chain).first(6));
  core_.Match(chain, decode_, prefill_);
  const Selection selection = core_.Select({.prompt_tokens = 8 * kBlockTokens + 5}, {decode_, prefill_});
  const std::vector<SpeculativeRun> left = core_.Expect(selection, chain, kNow, 3);
  const absl::Time until = kNow + absl::Seconds(60);  // nothing is predicted
  EXPECT_EQ(left, (std::vector<SpeculativeRun>{{prefill_[0].slot, 3, until}}))
      << "the decode worker lacks two";
  core_.Match(chain, decode_, prefill_);
  EXPECT_EQ(decode_[0].matched_blocks, 8);
  EXPECT_EQ(prefill_[0].matched_blocks, 3);
}

TEST_F(DispatchCoreTest, BlocksAreExpectedForAFewTtfts) {
  EXPECT_EQ(DispatchCore::ExpectUntil({.prefill = 0.1}, kNow), kNow + absl::Seconds(5));
  EXPECT_EQ(DispatchCore::ExpectUntil({.prefill = 3}, kNow), kNow + absl::Seconds(12));
  EXPECT_EQ(DispatchCore::ExpectUntil({.prefill = 300}, kNow), kNow + absl::Seconds(60));
  EXPECT_EQ(DispatchCore::ExpectUntil({}, kNow), kNow + absl::Seconds(60)) << "nothing is predicted";
}

}  // namespace
}  // namespace baton::router
