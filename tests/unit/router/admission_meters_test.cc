// The meters of a router, and of several that share limits by what they report and adopt.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "router/admission/meters.h"
#include "tests/seed.h"
#include "tests/unit/router/admission_time.h"

namespace baton::router::admission {
namespace {

constexpr TenantId kTenant{3};
constexpr TenantLimits kLimits = {.requests_per_minute = 60, .prompt_tokens_per_minute = 600};

TEST(MetersTest, ReportsWhatWasUsedOnce) {
  Meters meters;
  meters.Configure(kTenant, kLimits, At(0));
  EXPECT_TRUE(meters.TakeReports(At(0)).empty());
  meters.Charge(kTenant, {.requests = 1, .prompt_tokens = 100, .output_tokens = 7}, At(0));
  meters.Settle(kTenant, {.requests = 1, .prompt_tokens = 100}, {.requests = 1, .prompt_tokens = 60}, 1,
                At(0));
  const std::vector<Meters::Report> reports = meters.TakeReports(At(1));
  ASSERT_EQ(reports.size(), 2u);  // of limits that there are
  EXPECT_EQ(reports[0].limit, Limit::kRequests);
  EXPECT_EQ(reports[0].used, 1);
  EXPECT_EQ(reports[1].limit, Limit::kPromptTokens);
  EXPECT_EQ(reports[1].used, 60);
  EXPECT_EQ(reports[1].amount, 600);
  EXPECT_EQ(reports[1].period, absl::Minutes(1));
  EXPECT_TRUE(meters.TakeReports(At(1)).empty());
  meters.PutBack(reports);
  EXPECT_EQ(meters.TakeReports(At(1)).size(), 2u);
}

TEST(MetersTest, AdoptsALevelLessWhatWasUsedMeanwhile) {
  Meters meters;
  meters.Configure(kTenant, kLimits, At(0));
  meters.Charge(kTenant, {.requests = 10}, At(0));
  (void)meters.TakeReports(At(0));
  meters.Charge(kTenant, {.requests = 6}, At(0));
  meters.Adopt(kTenant, Limit::kRequests, 30, At(0));
  EXPECT_DOUBLE_EQ(meters.LeftOver(kTenant, At(0)).requests, 24.0 / 60);
  meters.Adopt(TenantId{99}, Limit::kRequests, 1, At(0));  // unknown
  meters.Adopt(kTenant, Limit::kQuota, 1, At(0));          // no such limit
  EXPECT_FALSE(meters.Check(kTenant, {.requests = 24}, At(0)).has_value());
  EXPECT_TRUE(meters.Check(kTenant, {.requests = 25}, At(0)).has_value());
}

TEST(MetersTest, AloneItHasAPartAndRefillsByIt) {
  Meters meters;
  meters.Configure(kTenant, kLimits, At(0));
  meters.Charge(kTenant, {.requests = 30}, At(0));
  meters.GoAlone(0.5, At(0));
  EXPECT_TRUE(meters.Check(kTenant, {.requests = 16}, At(0)).has_value());
  EXPECT_FALSE(meters.Check(kTenant, {.requests = 15}, At(0)).has_value());
  // A prompt beyond the part passes when that is full: the limit allows it.
  EXPECT_FALSE(meters.Check(kTenant, {.prompt_tokens = 500}, At(0)).has_value());
  meters.Charge(kTenant, {.prompt_tokens = 500}, At(0));
  EXPECT_TRUE(meters.Check(kTenant, {.prompt_tokens = 1}, At(30)).has_value());
  meters.Charge(kTenant, {.requests = 15}, At(0));
  EXPECT_TRUE(meters.Check(kTenant, {.requests = 2}, At(2)).has_value());
  EXPECT_FALSE(meters.Check(kTenant, {.requests = 2}, At(4)).has_value());
  // A tenant that is new meanwhile has a part too.
  meters.Configure(TenantId{4}, kLimits, At(4));
  EXPECT_TRUE(meters.Check(TenantId{4}, {.prompt_tokens = 601}, At(4)).has_value());
  meters.Charge(TenantId{4}, {.requests = 30}, At(4));
  EXPECT_TRUE(meters.Check(TenantId{4}, {.requests = 1}, At(4)).has_value());
  meters.EndAlone(At(4));
  EXPECT_FALSE(meters.Check(TenantId{4}, {.requests = 30}, At(4)).has_value());
}

// After hours alone, no more is reported than what the bucket has not refilled.
TEST(MetersTest, WhatIsLongPastIsNotReported) {
  Meters meters;
  meters.Configure(kTenant, kLimits, At(0));
  meters.GoAlone(1, At(0));
  for (int minute = 0; minute < 1000; ++minute) meters.Charge(kTenant, {.requests = 60}, At(minute * 60));
  const auto reports = meters.TakeReports(At(999 * 60 + 30));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_LE(reports[0].used, 60);
  EXPECT_GE(reports[0].used, 30);
}

// Routers with a store between them, whatever they do when: the store's level is what all have used, and no
// copy says more than the store when it has adopted.
TEST(MetersTest, CopiesAgreeWithOneBucket) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr int kRouters = 3;
  Meters routers[kRouters];
  for (Meters& meters : routers) meters.Configure(kTenant, {.requests_per_minute = 600}, At(0));
  Bucket store;  // refills as the server's script does
  store.Configure(600, absl::Minutes(1), At(0));
  double now = 0;
  int64_t admitted = 0;
  for (int i = 0; i < 20'000; ++i) {
    now += static_cast<double>(random() % 100) / 1000;
    Meters& meters = routers[random() % kRouters];
    if (random() % 3 != 0) {
      const auto want = static_cast<int64_t>(random() % 5);
      if (meters.Check(kTenant, {.requests = want}, At(now)).has_value()) continue;
      meters.Charge(kTenant, {.requests = want}, At(now));
      admitted += want;
      continue;
    }
    for (const auto& report : meters.TakeReports(At(now))) store.Take(report.used, At(now));
    meters.Adopt(kTenant, Limit::kRequests, store.Level(At(now)), At(now));
    EXPECT_NEAR(meters.LeftOver(kTenant, At(now)).requests, std::max(0.0, store.Level(At(now))) / 600, 1e-6);
  }
  for (Meters& meters : routers) {
    for (const auto& report : meters.TakeReports(At(now))) store.Take(report.used, At(now));
  }
  // A bucket, the refill, and what three copies may have admitted before they knew of one another.
  EXPECT_LE(static_cast<double>(admitted), 600 + now * 10 + kRouters * 60);
  EXPECT_GE(static_cast<double>(admitted), now * 10 * 0.9);
}

TEST(MetersTest, ATwentiethOfALimitIsUrgent) {
  Meters meters;
  meters.Configure(kTenant, kLimits, absl::Now());
  std::thread reporter([&] {
    meters.AwaitUse(absl::InfiniteDuration());
    EXPECT_EQ(meters.TakeReports(absl::Now()).front().used, 3);
  });
  for (int i = 0; i < 3; ++i) meters.Charge(kTenant, {.requests = 1}, absl::Now());
  reporter.join();
}

}  // namespace
}  // namespace baton::router::admission
