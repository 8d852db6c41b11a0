#include "router/api/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/rpc/status.h"

namespace baton::router {
namespace {

using admission::TenantId;
using ::testing::ElementsAre;

constexpr TenantId kA(1), kB(2), kC(3);
constexpr size_t kLarge = Executor::kLargeBytes + 1;

// An executor whose threads are held until GoOn(), and what it did in which order.
class ExecutorTest : public ::testing::Test {
 protected:
  void Start(int threads, size_t capacity = 100, size_t capacity_bytes = 100 << 20) {
    executor_ = std::make_unique<Executor>(Executor::Options{.threads = threads,
                                                             .capacity = capacity,
                                                             .capacity_bytes = capacity_bytes,
                                                             .clock = &clock_,
                                                             .dropped = [this] { ++dropped_; }});
  }
  // Holds one thread with a job of so many bytes.
  void Hold(size_t bytes = 0, TenantId tenant = TenantId(99)) {
    auto busy = std::make_shared<absl::Notification>();
    ASSERT_TRUE(executor_->TrySubmit({.tenant = tenant,
                                      .bytes = bytes,
                                      .wanted = [] { return true; },
                                      .work =
                                          [this, busy] {
                                            busy->Notify();
                                            go_on_.WaitForNotification();
                                            return true;
                                          },
                                      .drop = [] {}}));
    busy->WaitForNotification();
  }
  bool Submit(TenantId tenant, size_t bytes, const std::string& name, bool wanted = true) {
    return executor_->TrySubmit({.tenant = tenant,
                                 .bytes = bytes,
                                 .wanted = [wanted] { return wanted; },
                                 .work = [this, name] { return Did(name); },
                                 .drop = [this, name] { Did("drop " + name); }});
  }
  bool Did(const std::string& name) {
    absl::MutexLock lock(&mutex_);
    did_.push_back(name);
    return true;
  }
  std::vector<std::string> did() {
    absl::MutexLock lock(&mutex_);
    return did_;
  }
  void Await(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return did_.size() >= count; };
    mutex_.Await(absl::Condition(&enough));
  }
  void GoOn() {
    if (!go_on_.HasBeenNotified()) go_on_.Notify();
  }
  // Waits for everything.
  void Finish() {
    GoOn();
    executor_ = nullptr;
  }
  ~ExecutorTest() override { Finish(); }

  FakeClock clock_;
  std::atomic<int> dropped_ = 0;
  absl::Notification go_on_;
  absl::Mutex mutex_;
  std::vector<std::string> did_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, ATenantsJobsGoInTheirOrder) {
  Start(1);
  Hold();
  for (const char* name : {"1", "2", "3"}) EXPECT_TRUE(Submit(kA, 10, name));
  Finish();
  EXPECT_THAT(did(), ElementsAre("1", "2", "3"));
}

TEST_F(ExecutorTest, TenantsTakeTurnsByTheBytesOfTheirWork) {
  Start(1);
  Hold();
  for (const char* name : {"a1", "a2", "a3", "a4"}) EXPECT_TRUE(Submit(kA, 20'000, name));
  for (const char* name : {"b1", "b2", "b3", "b4"}) EXPECT_TRUE(Submit(kB, 10'000, name));
  Finish();
  EXPECT_THAT(did(), ElementsAre("a1", "b1", "b2", "a2", "b3", "b4", "a3", "a4"))
      << "20,000 bytes of a's for 20,000 of b's";
}

TEST_F(ExecutorTest, AFloodWaitsForWhoeverComesWithLittle) {
  Start(1);
  Hold();
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(Submit(kA, 1000, "flood"));
  EXPECT_TRUE(Submit(kB, 1000, "other"));
  Finish();
  const std::vector<std::string> order = did();
  EXPECT_LT(std::find(order.begin(), order.end(), "other") - order.begin(), 2);
}

// Coming one by one is no way to the front.
TEST_F(ExecutorTest, WhoeverNeverWaitsInLineHasHadItsWorkAllTheSame) {
  Start(1);
  Hold();
  EXPECT_TRUE(Submit(kA, 3000, "a"));
  EXPECT_TRUE(Submit(kA, 3000, "a"));
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds > 10) return;
    EXPECT_TRUE(executor_->TrySubmit({.tenant = kB,
                                      .bytes = 2000,
                                      .wanted = [] { return true; },
                                      .work =
                                          [&] {
                                            again();
                                            return Did("b");
                                          },
                                      .drop = [] {}}));
  };
  again();
  GoOn();
  Await(12);
  const std::vector<std::string> order = did();
  EXPECT_LT(std::find(order.rbegin(), order.rend(), "a") - order.rbegin(), 10) << "not at the very end";
  EXPECT_GT(std::find(order.rbegin(), order.rend(), "a") - order.rbegin(), 6);
}

// A tenant that comes for the first time shares from then on: what the others had before is not made up to
// it.
TEST_F(ExecutorTest, TimeWithoutWorkEarnsNothing) {
  Start(1);
  Hold();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Submit(kA, 20'000, "early"));
  EXPECT_TRUE(executor_->TrySubmit({.tenant = kA,
                                    .bytes = 20'000,
                                    .wanted = [] { return true; },
                                    .work =
                                        [&] {
                                          for (int i = 0; i < 4; ++i) EXPECT_TRUE(Submit(kB, 20'000, "b"));
                                          for (int i = 0; i < 4; ++i) EXPECT_TRUE(Submit(kA, 20'000, "a"));
                                          return true;
                                        },
                                    .drop = [] {}}));
  GoOn();
  Await(12);
  const std::vector<std::string> order = did();
  const auto first_a = std::find(order.begin(), order.end(), "a"),
             first_b = std::find(order.begin(), order.end(), "b");
  EXPECT_LE(first_a - first_b, 2) << "of equal work, at most two b's come before the first a";
  EXPECT_LT(first_b, first_a);
}

TEST_F(ExecutorTest, ShortTextsPassTheSameTenantsLargeOnes) {
  Start(1);
  Hold();
  for (const char* name : {"large 1", "large 2", "large 3"}) EXPECT_TRUE(Submit(kA, kLarge, name));
  for (const char* name : {"short 1", "short 2"}) EXPECT_TRUE(Submit(kA, 100, name));
  Finish();
  EXPECT_THAT(did(), ElementsAre("short 1", "large 1", "short 2", "large 2", "large 3"));
}

TEST_F(ExecutorTest, OneThreadIsKeptFromLargeJobs) {
  Start(2);
  Hold(kLarge, kA);
  EXPECT_TRUE(Submit(kA, kLarge, "large"));
  EXPECT_TRUE(Submit(kB, kLarge, "large"));
  EXPECT_TRUE(Submit(kC, 100, "short"));
  Await(1);
  EXPECT_THAT(did(), ElementsAre("short")) << "while a large one runs and others wait";
  Finish();
  EXPECT_THAT(did(), ElementsAre("short", "large", "large"));
}

TEST_F(ExecutorTest, WorkWhoseCallIsOverIsDropped) {
  Start(1);
  Hold();
  EXPECT_TRUE(Submit(kA, 10, "1", /*wanted=*/false));
  EXPECT_TRUE(Submit(kA, 10, "2"));
  EXPECT_TRUE(Submit(kA, 10, "3", /*wanted=*/false));
  EXPECT_TRUE(executor_->TrySubmit({.tenant = kB,
                                    .bytes = 10,
                                    .wanted = [] { return true; },
                                    .work = [] { return false; },  // given up on the way
                                    .drop = [] {}}));
  Finish();
  EXPECT_THAT(did(), ElementsAre("drop 1", "2", "drop 3"));
  EXPECT_EQ(dropped_, 3);
}

TEST_F(ExecutorTest, OneJobIsTakenWhateverItsSize) {
  Start(1, 2, 10);
  Hold(1 << 20);
  EXPECT_FALSE(Submit(kA, 1, "more"));
}

TEST_F(ExecutorTest, BoundedInJobs) {
  Start(1, /*capacity=*/9);
  Hold();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Submit(kA, 0, "a"));
  EXPECT_FALSE(Submit(kA, 0, "a")) << "more than what is left free";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Submit(kB, 0, "b"));
  EXPECT_FALSE(Submit(kB, 0, "b"));
  EXPECT_TRUE(Submit(kC, 0, "c")) << "there is room for one who has nothing here";
  Finish();
  EXPECT_EQ(did().size(), 7u);
}

TEST_F(ExecutorTest, BoundedInBytesUntilTheWorkIsDone) {
  Start(1, 100, /*capacity_bytes=*/1000);
  Hold(200, kA);
  EXPECT_TRUE(Submit(kA, 200, "1"));
  EXPECT_FALSE(Submit(kA, 300, "2")) << "what runs counts";
  EXPECT_TRUE(Submit(kB, 300, "3"));
  GoOn();
  Await(2);
  // Their bytes come back when they are done; this job's turn comes after that of both.
  EXPECT_TRUE(Submit(kA, 0, "4"));
  Await(3);
  EXPECT_TRUE(Submit(kA, 400, "5"));
}

TEST_F(ExecutorTest, TheRetryDelayFollowsThePaceAndTheBacklog) {
  Start(1);
  const auto delay = [this] { return *rpc::RetryDelay(executor_->Full()); };
  EXPECT_TRUE(absl::IsResourceExhausted(executor_->Full()));
  EXPECT_EQ(delay(), absl::Milliseconds(100));
  // Two seconds for each megabyte, again and again.
  for (size_t i = 1; i <= 100; ++i) {
    EXPECT_TRUE(executor_->TrySubmit({.tenant = kA,
                                      .bytes = 1'000'000,
                                      .wanted = [] { return true; },
                                      .work =
                                          [this] {
                                            clock_.Advance(absl::Seconds(2));
                                            return Did("paced");
                                          },
                                      .drop = [] {}}));
    Await(i);
  }
  Hold();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Submit(kA, 1'000'000, "waits"));
  EXPECT_NEAR(absl::ToDoubleSeconds(delay()), 20, 1);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Submit(kB, 1'200'000, "waits"));
  EXPECT_NEAR(absl::ToDoubleSeconds(delay()), 44, 2);
  for (int i = 0; i < 15; ++i) EXPECT_TRUE(Submit(kC, 1'000'000, "waits"));
  EXPECT_EQ(delay(), absl::Seconds(60)) << "and no longer than a minute";
}

}  // namespace
}  // namespace baton::router
