// Why no fetch is planned although a peer holds more of the prompt than the worker that computes it.
#include <gtest/gtest.h>

#include <vector>

#include "router/placement/policy.h"

namespace baton::router::placement {
namespace {

// A busy decode worker that holds 200 blocks of 4,000 tokens, and a prefill worker that computes them.
class NoFetchTest : public testing::Test {
 protected:
  NoFetchTest() {
    decode_[0].slot = WorkerSlot(0);
    decode_[0].running = 40;
    decode_[0].serves_fetches = true;
    decode_[0].matched_blocks = decode_[0].confirmed_blocks = 200;
    prefill_[0].slot = WorkerSlot(1);
    prefill_[0].can_fetch = true;
    request_.prefill_apart = true;
  }
  Selection Select() const {
    return (*MakePolicy("prefix_affinity", 1))->Select(request_, {decode_, prefill_});
  }

  Request request_ = {.prompt_tokens = 4000, .max_tokens = 100};
  std::vector<WorkerState> decode_ = std::vector<WorkerState>(1);
  std::vector<WorkerState> prefill_ = std::vector<WorkerState>(1);
};

TEST_F(NoFetchTest, NothingIsToBeSaidOfAFetchOrWherePeersHoldNoMore) {
  const Selection fetching = Select();
  EXPECT_EQ(fetching.fetch_from, WorkerSlot(0));
  EXPECT_EQ(fetching.no_fetch, NoFetch::kNone);
  prefill_[0].matched_blocks = 200;
  const Selection holding = Select();
  EXPECT_FALSE(holding.fetch_from.has_value());
  EXPECT_EQ(holding.no_fetch, NoFetch::kNone);
}

TEST_F(NoFetchTest, TheWorkerThatComputesCannot) {
  prefill_[0].can_fetch = false;
  EXPECT_EQ(Select().no_fetch, NoFetch::kCannot);
}

TEST_F(NoFetchTest, BlocksAreOnlyExpectedOrNotServed) {
  decode_[0].confirmed_blocks = 0;
  EXPECT_EQ(Select().no_fetch, NoFetch::kUnconfirmed);
  decode_[0].confirmed_blocks = 200;
  decode_[0].serves_fetches = false;
  EXPECT_EQ(Select().no_fetch, NoFetch::kUnconfirmed);
}

TEST_F(NoFetchTest, ComputingAgainIsSooner) {
  prefill_[0].matched_blocks = 199;  // one block is computed in no time
  EXPECT_EQ(Select().no_fetch, NoFetch::kDearer);
}

// A decode worker without prefill workers lacks what it is only expected to hold; its own blocks are no
// peer's.
TEST_F(NoFetchTest, ADecodeWorkerThatComputesItselfHasItsReasonToo) {
  prefill_.clear();
  decode_[0].confirmed_blocks = 0;
  EXPECT_EQ(Select().no_fetch, NoFetch::kNone);
  WorkerState& leaving = decode_.emplace_back(decode_[0]);
  leaving.slot = WorkerSlot(2);
  leaving.running = 400;
  EXPECT_EQ(Select().no_fetch, NoFetch::kCannot);
  decode_[0].can_fetch = true;
  EXPECT_EQ(Select().no_fetch, NoFetch::kUnconfirmed);
  decode_[1].confirmed_blocks = 200;
  EXPECT_EQ(Select().fetch_blocks, 200);
}

}  // namespace
}  // namespace baton::router::placement
