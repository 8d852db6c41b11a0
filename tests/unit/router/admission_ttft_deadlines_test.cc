#include <gtest/gtest.h>

#include <random>

#include "router/admission/ttft_deadlines.h"
#include "tests/seed.h"
#include "tests/unit/router/admission_time.h"

namespace baton::router::admission {
namespace {

TEST(TtftDeadlinesTest, TheClientsDeadlineComesFirst) {
  const TtftDeadlines deadlines(absl::Seconds(2));
  EXPECT_EQ(deadlines.Due(At(100), At(1)), At(100));
  EXPECT_EQ(deadlines.Due(absl::InfiniteFuture(), At(1)), At(3));
  EXPECT_EQ(deadlines.Due(absl::InfiniteFuture(), At(1), absl::Seconds(5)), At(11))
      << "a prompt that takes long by itself is refused for its wait alone";
}

TEST(TtftDeadlinesTest, WithoutADefaultNothingIsEverDue) {
  const TtftDeadlines deadlines(absl::InfiniteDuration());
  EXPECT_EQ(deadlines.Due(absl::InfiniteFuture(), At(1), absl::Seconds(5)), absl::InfiniteFuture());
}

TEST(TtftDeadlinesTest, NeedsSomeOutcomesToBeTrusted) {
  TtftDeadlines deadlines(absl::Seconds(2));
  for (int i = 0; i < TtftDeadlines::kOutcomesToTrust; ++i) {
    EXPECT_FALSE(deadlines.trusted());
    deadlines.Observe(1, 1, deadlines.trusted());
  }
  EXPECT_TRUE(deadlines.trusted());
  EXPECT_EQ(deadlines.WithMargin(1.5), absl::Seconds(1.5)) << "they held";
}

// Whatever predictions are off by, about nine in ten first tokens come within the cautious time.
TEST(TtftDeadlinesTest, TheMarginCoversNineInTen) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> off(std::log(1.5), 0.2);  // half as much again, give or take
  TtftDeadlines deadlines(absl::Seconds(2));
  for (int i = 0; i < 1000; ++i) deadlines.Observe(1, off(random), true);
  int in_time = 0;
  constexpr int kTrials = 10'000;
  for (int i = 0; i < kTrials; ++i) {
    const double actual = off(random);
    in_time += absl::Seconds(actual) <= deadlines.WithMargin(1);
    deadlines.Observe(1, actual, true);
  }
  EXPECT_NEAR(in_time, 0.9 * kTrials, 0.03 * kTrials);
}

// A router that starts under overload: what it predicted before it knew its workers came twenty times as
// late. What it predicts now is right, and is charged no margin for that.
TEST(TtftDeadlinesTest, WhatWasPredictedBeforeItWasTrustedLeavesNoMargin) {
  TtftDeadlines deadlines(absl::Seconds(2));
  for (int i = 0; i < 12; ++i) deadlines.Observe(1.2, 23, /*trusted=*/false);
  ASSERT_TRUE(deadlines.trusted());
  EXPECT_EQ(deadlines.WithMargin(23), absl::Seconds(23));
}

// Predictions that fell short and are right again: the margin goes with the bad ones.
TEST(TtftDeadlinesTest, AMarginIsGoneAfterTwentyGoodPredictions) {
  TtftDeadlines deadlines(absl::Seconds(2));
  for (int i = 0; i < 50; ++i) deadlines.Observe(1, 2.6, true);
  EXPECT_EQ(deadlines.margin(), 2.6);
  for (int i = 0; i < 20; ++i) deadlines.Observe(20, 21, true);
  EXPECT_LT(deadlines.margin(), 1.1);
}

TEST(TtftDeadlinesTest, AMarginHealsAndStaysWithinBounds) {
  TtftDeadlines deadlines(absl::Seconds(2));
  for (int i = 0; i < 1000; ++i) deadlines.Observe(1, 100, true);
  EXPECT_EQ(deadlines.margin(), 3);
  for (int i = 0; i < 1000; ++i) deadlines.Observe(1, 0.5, true);
  EXPECT_EQ(deadlines.margin(), 1);
  for (int i = 0; i < 100; ++i) deadlines.Observe(0.1, 0.4, true);
  EXPECT_EQ(deadlines.margin(), 1) << "small predictions say nothing about those that refuse";
}

}  // namespace
}  // namespace baton::router::admission
