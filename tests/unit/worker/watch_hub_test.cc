#include "worker/watch_hub.h"

#include <gtest/gtest.h>

namespace baton::worker {
namespace {

class WatchHubTest : public testing::Test {
 protected:
  void Publish(uint32_t queued, uint32_t running, size_t serves) {
    fleet::v1::Load load;
    load.set_queued(queued);
    load.set_running(running);
    hub_.Publish(
        std::move(load), serves, {}, [] { return std::vector<kv::BlockHash>(); }, absl::UnixEpoch());
  }
  // How often `idle` was called.
  std::shared_ptr<int> Await() {
    auto calls = std::make_shared<int>(0);
    hub_.WhenIdle([calls] { ++*calls; });
    return calls;
  }

  WatchHub hub_{fleet::v1::WorkerInfo(), [] {}};
};

// A worker that leaves takes its KV with it: first its own work ends, then what peers fetch from it.
TEST_F(WatchHubTest, IsIdleWhenNeitherItsOwnWorkNorAPeersFetchRuns) {
  const auto idle = Await();
  EXPECT_EQ(*idle, 0) << "nothing is known yet";
  Publish(1, 1, 1);
  EXPECT_EQ(*idle, 0);
  Publish(0, 1, 0);
  EXPECT_EQ(*idle, 0);
  Publish(1, 0, 0);
  EXPECT_EQ(*idle, 0);
  Publish(0, 0, 1);
  EXPECT_EQ(*idle, 0) << "a peer is served";
  Publish(0, 0, 0);
  EXPECT_EQ(*idle, 1);
  Publish(0, 0, 0);
  EXPECT_EQ(*idle, 1) << "once";
}

// A fetch or a request may have begun since the last word from the engine.
TEST_F(WatchHubTest, IsIdleByWhatIsPublishedAfterTheQuestion) {
  Publish(0, 0, 0);
  const auto idle = Await();
  EXPECT_EQ(*idle, 0);
  Publish(0, 0, 1);
  EXPECT_EQ(*idle, 0);
  Publish(0, 0, 0);
  EXPECT_EQ(*idle, 1);
}

TEST_F(WatchHubTest, ClosingWaitsForNobody) {
  Publish(0, 0, 1);
  const auto idle = Await();
  hub_.Close();
  EXPECT_EQ(*idle, 1);
  EXPECT_EQ(*Await(), 1) << "nor does who comes late";
}

}  // namespace
}  // namespace baton::worker
