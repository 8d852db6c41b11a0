#include "engine/loop.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "tests/patience.h"

namespace baton::engine {
namespace {

TEST(LoopTest, RestsAsLongAsItIsToldAndThenStepsWithoutMail) {
  Loop loop(4);
  std::atomic<int> steps = 0;
  absl::Notification third;
  loop.Start(
      [&] {
        if (++steps == 3) third.Notify();
        return false;
      },
      [] { return absl::Milliseconds(1); });
  EXPECT_TRUE(third.WaitForNotificationWithTimeout(Scaled(absl::Seconds(60)))) << steps << " steps";
}

TEST(LoopTest, RestsUntilMailComesAndRunsItBeforeTheStep) {
  Loop loop(4);
  std::atomic<int> steps = 0, rests = 0;
  absl::Notification resting, second;
  int seen = 0;  // steps before the task
  loop.Start(
      [&] {
        if (++steps == 2) second.Notify();
        return false;
      },
      [&] {
        if (++rests == 1) resting.Notify();
        return absl::InfiniteDuration();
      });
  resting.WaitForNotification();
  ASSERT_TRUE(loop.TryPost([&] { seen = steps; }));
  second.WaitForNotification();
  loop.Stop();
  EXPECT_EQ(seen, 1);
}

TEST(LoopTest, WorkIsNotKeptWaiting) {
  Loop loop(4);
  int steps = 0, at_first_rest = 0;
  absl::Notification resting;
  loop.Start([&] { return ++steps < 100; },
             [&] {
               if (at_first_rest == 0) {
                 at_first_rest = steps;
                 resting.Notify();
               }
               return absl::InfiniteDuration();
             });
  resting.WaitForNotification();
  loop.Stop();
  EXPECT_EQ(at_first_rest, 100);
}

}  // namespace
}  // namespace baton::engine
