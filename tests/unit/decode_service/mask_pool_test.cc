#include "decode_service/mask_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"

namespace baton::decode_service {
namespace {

using Lane = MaskPool::Lane;

bool Post(MaskPool& pool, Lane lane, MaskPool::Work work) {
  const bool posted = pool.Post(lane, work);
  pool.Wake();
  return posted;
}

TEST(MaskPoolTest, WorkIsDoneInOrderOnceThePoolIsWoken) {
  MaskPool pool({});
  std::atomic<int> did = 0;
  absl::Notification second, slow;
  MaskPool::Work works[] = {[&] { ++did; },
                            [&] {
                              EXPECT_EQ(did.load(), 1);
                              second.Notify();
                            },
                            [&] { slow.Notify(); }};
  ASSERT_TRUE(pool.Post(Lane::kSwift, works[0]) && pool.Post(Lane::kSwift, works[1]) &&
              pool.Post(Lane::kSlow, works[2]));
  EXPECT_EQ(did.load(), 0) << "a thread was woken for one piece of work";
  pool.Wake();
  second.WaitForNotification();
  slow.WaitForNotification();
}

TEST(MaskPoolTest, SlowWorkHoldsUpNoSwiftWork) {
  MaskPool pool({});
  absl::Notification begun, go_on, swift, slow;
  ASSERT_TRUE(Post(pool, Lane::kSlow, [&] {
    begun.Notify();
    go_on.WaitForNotification();
  }));
  begun.WaitForNotification();
  ASSERT_TRUE(Post(pool, Lane::kSlow, [&] { slow.Notify(); }));
  ASSERT_TRUE(Post(pool, Lane::kSwift, [&] { swift.Notify(); }));
  swift.WaitForNotification();
  EXPECT_FALSE(slow.HasBeenNotified()) << "the slow lane has one thread";
  go_on.Notify();
  slow.WaitForNotification();
}

TEST(MaskPoolTest, WithoutThreadsWhoeverAsksDoesTheWorkInOrder) {
  MaskPool pool({.swift = 0, .slow = 0});
  EXPECT_FALSE(pool.has_threads());
  std::string did;
  ASSERT_TRUE(Post(pool, Lane::kSlow, [&] { did += "s"; }));
  ASSERT_TRUE(Post(pool, Lane::kSwift, [&] { did += "1"; }));
  ASSERT_TRUE(Post(pool, Lane::kSwift, [&] { did += "2"; }));
  while (pool.RunOne()) {
  }
  EXPECT_EQ(did, "12s");
}

TEST(MaskPoolTest, AStoppedPoolGivesWorkBack) {
  MaskPool pool({});
  pool.Stop();
  pool.Stop();
  bool did = false;
  MaskPool::Work work = [&] { did = true; };
  EXPECT_FALSE(pool.Post(Lane::kSwift, work));
  work();
  EXPECT_TRUE(did);
}

}  // namespace
}  // namespace baton::decode_service
