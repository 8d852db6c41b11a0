#include "gateway/side_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "absl/synchronization/notification.h"

namespace baton::gateway {
namespace {

TEST(SideThreadTest, OneAddressAfterTheOther) {
  std::vector<int> order;
  {
    SideThread thread;
    absl::Notification begun, all_wait;
    thread.Run("a", [&] {
      begun.Notify();
      all_wait.WaitForNotification();
    });
    begun.WaitForNotification();
    for (int i = 1; i <= 3; ++i) thread.Run("a", [&order, i] { order.push_back(i); });
    thread.Run("b", [&order] { order.push_back(10); });
    thread.Run("c", [&order] { order.push_back(20); });
    thread.Run("b", [&order] { order.push_back(11); });
    all_wait.Notify();
  }  // does what is left
  EXPECT_THAT(order, testing::ElementsAre(1, 10, 20, 2, 11, 3));
}

TEST(SideThreadTest, ATaskThatThrowsEndsItselfAlone) {
  bool done = false;
  {
    SideThread thread;
    thread.Run("a", [] { throw std::length_error("too long"); });
    thread.Run("a", [&done] { done = true; });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace baton::gateway
