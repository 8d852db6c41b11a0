#include <gtest/gtest.h>

#include <random>

#include "common/base/random.h"
#include "router/admission/foresight.h"

namespace baton::router::admission {
namespace {

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(ForesightTest, TheClientsDeadlineComesFirst) {
  const Foresight foresight(absl::Seconds(2));
  EXPECT_EQ(foresight.Due(At(100), At(1)), At(100));
  EXPECT_EQ(foresight.Due(absl::InfiniteFuture(), At(1)), At(3));
  EXPECT_EQ(foresight.Due(absl::InfiniteFuture(), At(1), absl::Seconds(5)), At(11))
      << "a prompt that takes long by itself is refused for its wait alone";
}

TEST(ForesightTest, WithoutADefaultNothingIsEverDue) {
  const Foresight foresight(absl::InfiniteDuration());
  EXPECT_EQ(foresight.Due(absl::InfiniteFuture(), At(1), absl::Seconds(5)), absl::InfiniteFuture());
}

TEST(ForesightTest, NeedsSomeOutcomesToBeTrusted) {
  Foresight foresight(absl::Seconds(2));
  for (int i = 0; i < Foresight::kOutcomesToTrust; ++i) {
    EXPECT_FALSE(foresight.trusted());
    foresight.Observe(1, 1, foresight.trusted());
  }
  EXPECT_TRUE(foresight.trusted());
  EXPECT_EQ(foresight.Cautious(1.5), absl::Seconds(1.5)) << "they held";
}

// Whatever predictions are off by, about nine in ten first tokens come within the cautious time.
TEST(ForesightTest, TheMarginCoversNineInTen) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> off(std::log(1.5), 0.2);  // half as much again, give or take
  Foresight foresight(absl::Seconds(2));
  for (int i = 0; i < 1000; ++i) foresight.Observe(1, off(random), true);
  int in_time = 0;
  constexpr int kTrials = 10'000;
  for (int i = 0; i < kTrials; ++i) {
    const double actual = off(random);
    in_time += absl::Seconds(actual) <= foresight.Cautious(1);
    foresight.Observe(1, actual, true);
  }
  EXPECT_NEAR(in_time, 0.9 * kTrials, 0.03 * kTrials);
}

// A router that starts under overload: what it predicted before it knew its workers came twenty times as
// late. What it predicts now is right, and is charged no margin for that.
TEST(ForesightTest, WhatWasPredictedBeforeItWasTrustedLeavesNoMargin) {
  Foresight foresight(absl::Seconds(2));
  for (int i = 0; i < 12; ++i) foresight.Observe(1.2, 23, /*trusted=*/false);
  ASSERT_TRUE(foresight.trusted());
  EXPECT_EQ(foresight.Cautious(23), absl::Seconds(23));
}

// Predictions that fell short and are right again: the margin goes with the bad ones.
TEST(ForesightTest, AMarginIsGoneAfterTwentyGoodPredictions) {
  Foresight foresight(absl::Seconds(2));
  for (int i = 0; i < 50; ++i) foresight.Observe(1, 2.6, true);
  EXPECT_EQ(foresight.margin(), 2.6);
  for (int i = 0; i < 20; ++i) foresight.Observe(20, 21, true);
  EXPECT_LT(foresight.margin(), 1.1);
}

TEST(ForesightTest, AMarginHealsAndStaysWithinBounds) {
  Foresight foresight(absl::Seconds(2));
  for (int i = 0; i < 1000; ++i) foresight.Observe(1, 100, true);
  EXPECT_EQ(foresight.margin(), 3);
  for (int i = 0; i < 1000; ++i) foresight.Observe(1, 0.5, true);
  EXPECT_EQ(foresight.margin(), 1);
  for (int i = 0; i < 100; ++i) foresight.Observe(0.1, 0.4, true);
  EXPECT_EQ(foresight.margin(), 1) << "small predictions say nothing about those that refuse";
}

}  // namespace
}  // namespace baton::router::admission
