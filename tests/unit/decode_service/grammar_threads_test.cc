#include "decode_service/grammar_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"

namespace baton::decode_service {
namespace {

using Lane = GrammarThreads::Lane;

bool Post(GrammarThreads& pool, Lane lane, GrammarThreads::Work work, const std::string& salt = "a") {
  const bool posted = pool.Post(lane, salt, work);
  pool.Wake();
  return posted;
}

TEST(GrammarThreadsTest, WorkIsDoneInOrderOnceThePoolIsWoken) {
  GrammarThreads pool({});
  std::atomic<int> did = 0;
  absl::Notification second, slow;
  GrammarThreads::Work works[] = {[&] { ++did; },
                                  [&] {
                                    EXPECT_EQ(did.load(), 1);
                                    second.Notify();
                                  },
                                  [&] { slow.Notify(); }};
  ASSERT_TRUE(pool.Post(Lane::kSwift, "", works[0]) && pool.Post(Lane::kSwift, "", works[1]) &&
              pool.Post(Lane::kSlow, "", works[2]));
  EXPECT_EQ(did.load(), 0) << "a thread was woken for one piece of work";
  pool.Wake();
  second.WaitForNotification();
  slow.WaitForNotification();
}

TEST(GrammarThreadsTest, SlowWorkHoldsUpNoSwiftWork) {
  GrammarThreads pool({});
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

TEST(GrammarThreadsTest, WithoutThreadsWhoeverAsksDoesTheWorkInOrder) {
  GrammarThreads pool({.swift = 0, .slow = 0});
  EXPECT_FALSE(pool.has_threads());
  std::string did;
  ASSERT_TRUE(Post(pool, Lane::kSlow, [&] { did += "s"; }));
  ASSERT_TRUE(Post(pool, Lane::kSwift, [&] { did += "1"; }));
  ASSERT_TRUE(Post(pool, Lane::kSwift, [&] { did += "2"; }));
  while (pool.RunOne()) {
  }
  EXPECT_EQ(did, "12s");
}

TEST(GrammarThreadsTest, TenantsTakeTurnsInEachLane) {
  for (const Lane lane : {Lane::kSlow, Lane::kSwift}) {
    GrammarThreads pool({.swift = 0, .slow = 0});
    std::string did;
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(Post(
          pool, lane, [&] { did += "a"; }, "a"));
    ASSERT_TRUE(Post(
        pool, lane, [&] { did += "b"; }, "b"));
    while (pool.RunOne()) {
    }
    EXPECT_EQ(did, "abaa");
  }
}

// The lane's thread is held while the work comes.
TEST(GrammarThreadsTest, ATenantWithMuchSlowWorkHoldsUpNoOtherTenant) {
  GrammarThreads pool({});
  absl::Notification begun, go_on, over;
  ASSERT_TRUE(Post(pool, Lane::kSlow, [&] {
    begun.Notify();
    go_on.WaitForNotification();
  }));
  begun.WaitForNotification();
  std::string did;  // the slow lane has one thread
  for (int i = 0; i < 16; ++i)
    ASSERT_TRUE(Post(
        pool, Lane::kSlow, [&] { did += "a"; }, "a"));
  ASSERT_TRUE(Post(
      pool, Lane::kSlow, [&] { did += "b"; }, "b"));
  ASSERT_TRUE(Post(
      pool, Lane::kSlow, [&] { over.Notify(); }, "a"));
  go_on.Notify();
  over.WaitForNotification();
  EXPECT_EQ(did.find('b'), 1u) << did;
}

TEST(GrammarThreadsTest, EachLaneHasABoundOfItsOwn) {
  GrammarThreads pool({.swift = 0, .slow = 0, .capacity = 2});
  EXPECT_TRUE(Post(
      pool, Lane::kSlow, [] {}, "a"));
  EXPECT_FALSE(Post(
      pool, Lane::kSlow, [] {}, "a"));
  EXPECT_TRUE(Post(
      pool, Lane::kSlow, [] {}, "b"));
  EXPECT_FALSE(Post(
      pool, Lane::kSlow, [] {}, "c"));
  EXPECT_TRUE(Post(
      pool, Lane::kSwift, [] {}, "a"));
}

TEST(GrammarThreadsTest, AStoppedPoolGivesWorkBack) {
  GrammarThreads pool({});
  pool.Stop();
  pool.Stop();
  bool did = false;
  GrammarThreads::Work work = [&] { did = true; };
  EXPECT_FALSE(pool.Post(Lane::kSwift, "", work));
  work();
  EXPECT_TRUE(did);
}

}  // namespace
}  // namespace baton::decode_service
