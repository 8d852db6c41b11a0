#include "router/executor.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"

namespace baton::router {
namespace {

// One thread, kept busy until told otherwise.
class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() {
    EXPECT_TRUE(executor_.TryRun(1000, [this] {
      busy_.Notify();
      go_on_.WaitForNotification();
    })) << "one piece whatever its size";
    busy_.WaitForNotification();
  }
  ~ExecutorTest() override {
    if (!go_on_.HasBeenNotified()) go_on_.Notify();
  }

  std::atomic<int> done_ = 0;
  absl::Notification busy_, go_on_;
  Executor executor_{1, 3, 100};
};

TEST_F(ExecutorTest, RefusesBeyondItsPieces) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(executor_.TryRun(1, [this] { ++done_; }));
  EXPECT_FALSE(executor_.TryRun(1, [this] { ++done_; }));
}

TEST_F(ExecutorTest, RefusesBeyondItsBytesAndTakesMoreWhenTheyAreGone) {
  EXPECT_TRUE(executor_.TryRun(60, [this] { ++done_; }));
  EXPECT_FALSE(executor_.TryRun(60, [this] { ++done_; }));
  EXPECT_TRUE(executor_.TryRun(40, [this] { ++done_; }));
  absl::Notification last;
  EXPECT_TRUE(executor_.TryRun(0, [&last] { last.Notify(); }));
  go_on_.Notify();
  last.WaitForNotification();
  EXPECT_EQ(done_, 2);
  EXPECT_TRUE(executor_.TryRun(100, [this] { ++done_; }));
}

}  // namespace
}  // namespace baton::router
