#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "router/admission/meter.h"
#include "tests/seed.h"
#include "tests/unit/router/admission_time.h"

namespace baton::router::admission {
namespace {

using ::testing::HasSubstr;

TEST(BucketTest, RefillsEvenlyAndHoldsOnePeriod) {
  Bucket bucket;
  bucket.Configure(60, absl::Minutes(1), At(0));
  EXPECT_EQ(bucket.Until(60, At(0)), absl::ZeroDuration());
  bucket.Take(60, At(0));
  EXPECT_EQ(bucket.Until(1, At(0.5)), absl::Seconds(0.5 - 1e-6));
  EXPECT_EQ(bucket.Until(1, At(1)), absl::ZeroDuration());
  EXPECT_DOUBLE_EQ(bucket.Level(At(1000)), 60);
  EXPECT_EQ(bucket.Until(61, At(1000)), absl::InfiniteDuration());
}

TEST(BucketTest, ANewLimitKeepsWhatWasUsed) {
  Bucket bucket;
  bucket.Configure(100, absl::Minutes(1), At(0));
  bucket.Take(80, At(0));
  bucket.Configure(200, absl::Minutes(1), At(0));
  EXPECT_DOUBLE_EQ(bucket.Level(At(0)), 120);
  bucket.Configure(50, absl::Minutes(1), At(0));
  EXPECT_DOUBLE_EQ(bucket.Level(At(0)), -30);
  bucket.Configure(0, absl::Minutes(1), At(0));
  EXPECT_EQ(bucket.Until(1'000'000, At(0)), absl::ZeroDuration());
}

// Whatever is asked for when: in any time t no more goes through than one bucket and t's refill.
TEST(BucketTest, NeverLetsMoreThroughThanItsRate) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Bucket bucket;
  bucket.Configure(600, absl::Minutes(1), At(0));
  double seconds = 0;
  int64_t through = 0;
  for (int i = 0; i < 10'000; ++i) {
    seconds += static_cast<double>(random() % 1000) / 1000;
    const auto want = static_cast<int64_t>(random() % 30);
    if (bucket.Until(want, At(seconds)) > absl::ZeroDuration()) continue;
    bucket.Take(want, At(seconds));
    through += want;
    ASSERT_LE(static_cast<double>(through), 600 + 10 * seconds + 1);
  }
  EXPECT_GT(through, 1000);
}

TEST(MeterTest, SaysWhichLimitAndForHowLong) {
  Meter meter;
  meter.Configure({.requests_per_minute = 60, .prompt_tokens_per_minute = 600}, At(0));
  meter.Charge({.requests = 1, .prompt_tokens = 600}, At(0));
  const auto no = meter.Check({.requests = 1, .prompt_tokens = 100}, At(0));
  ASSERT_TRUE(no.has_value());
  EXPECT_EQ(no->reason, Reason::kPromptRate);
  EXPECT_THAT(no->message, HasSubstr("600 prompt tokens per minute"));
  EXPECT_NEAR(absl::ToDoubleSeconds(no->retry), 10, 0.01);
  EXPECT_FALSE(meter.Check({.requests = 1, .prompt_tokens = 100}, At(0) + no->retry).has_value())
      << "the delay that it names is enough";
}

TEST(MeterTest, WhatCanNeverPassIsSaidSo) {
  Meter meter;
  meter.Configure({.prompt_tokens_per_minute = 600}, At(0));
  const auto no = meter.Check({.requests = 1, .prompt_tokens = 601}, At(0));
  ASSERT_TRUE(no.has_value());
  EXPECT_EQ(no->retry, absl::InfiniteDuration());
}

TEST(MeterTest, SettlesByWhatWasReallyUsed) {
  Meter meter;
  meter.Configure({.output_tokens_per_minute = 1000}, At(0));
  meter.Charge({.requests = 1, .output_tokens = 400}, At(0));
  EXPECT_DOUBLE_EQ(meter.LeftOver(At(0)).output_tokens, 0.6);
  meter.Settle({.requests = 1, .output_tokens = 400}, {.requests = 1, .output_tokens = 100}, 1, At(0));
  EXPECT_DOUBLE_EQ(meter.LeftOver(At(0)).output_tokens, 0.9);
  // More than was reserved leaves a debt that refills first.
  meter.Charge({.requests = 1, .output_tokens = 400}, At(0));
  meter.Settle({.requests = 1, .output_tokens = 400}, {.requests = 1, .output_tokens = 2900}, 1, At(0));
  const auto no = meter.Check({.requests = 1, .output_tokens = 1}, At(0));
  ASSERT_TRUE(no.has_value());
  EXPECT_EQ(no->reason, Reason::kOutputRate);
  EXPECT_GT(no->retry, absl::Minutes(2) - absl::Seconds(1));
}

TEST(MeterTest, TheQuotaCountsPromptAndOutputAndGivesBack) {
  Meter meter;
  meter.Configure({.tokens_per_day = 1000}, At(0));
  const Meter::Use charged{.requests = 1, .prompt_tokens = 700, .output_tokens = 200};
  meter.Charge(charged, At(0));
  const auto no = meter.Check({.requests = 1, .prompt_tokens = 101}, At(0));
  ASSERT_TRUE(no.has_value());
  EXPECT_EQ(no->reason, Reason::kQuota);
  meter.Settle(charged, {}, 1, At(0));
  EXPECT_FALSE(meter.Check({.requests = 1, .prompt_tokens = 1000}, At(0)).has_value());
}

TEST(MeterTest, ReservesWhatAnswersLatelyWere) {
  Meter meter;
  EXPECT_EQ(meter.ExpectedAnswer(10), 10);
  for (int i = 0; i < 500; ++i) meter.Settle({}, {.output_tokens = 64}, 2, At(0));
  EXPECT_NEAR(static_cast<double>(meter.ExpectedAnswer(100'000)), 32, 1);
}

}  // namespace
}  // namespace baton::router::admission
