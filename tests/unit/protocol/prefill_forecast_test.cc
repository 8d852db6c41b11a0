#include "protocol/forecast/prefill_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/random.h"
#include "tests/seed.h"

namespace baton::forecast {
namespace {

constexpr QueueTargets kTargets = QueueTargets::For(2, 0);
constexpr PrefillCost kTruth = {.base = 7e-3, .token = 120e-6, .pair = 4e-9};

TEST(PrefillForecastTest, LearnsAWorkerThatIsNothingLikeThePrior) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  PrefillForecast forecast;
  for (uint64_t i = 0; i < 300; ++i) {
    const auto uncached = 1 + static_cast<int64_t>(UniformAt(seed, 3 * i) * 20'000);
    const auto cached = static_cast<int64_t>(UniformAt(seed, 3 * i + 1) * 20'000);
    const double noise = 0.9 + 0.2 * UniformAt(seed, 3 * i + 2);
    forecast.Observe(uncached, cached, kTruth.Seconds(uncached, cached) * noise);
  }
  for (const auto& [uncached, cached] : {std::pair(200, 0), {2000, 8000}, {16'000, 0}, {16'000, 16'000}}) {
    EXPECT_NEAR(forecast.Seconds(uncached, cached) / kTruth.Seconds(uncached, cached), 1, 0.15)
        << uncached << " after " << cached;
  }
  EXPECT_LT(forecast.relative_error(), 0.2);
}

// Whatever the machine, and however far the prior is off: three prompts, whose lengths lie apart, and what
// lies between them is known.
TEST(PrefillForecastTest, ThreeObservationsAreEnoughOnAnyMachine) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto between = [&](double low, double high) {  // on a scale of factors
    return low * std::pow(high / low, UniformAt(seed, draws++));
  };
  for (int machine = 0; machine < 500; ++machine) {
    const double token = between(1e-6, 20e-3);
    const PrefillCost truth = {
        .base = token * between(1, 500), .token = token, .pair = token * between(3e-6, 3e-4)};
    PrefillForecast forecast;
    for (const int64_t tokens : {400, 1500, 6000}) {
      forecast.Observe(tokens, 0, truth.Seconds(tokens, 0) * between(0.98, 1.02));
    }
    for (const int64_t tokens : {400, 800, 1500, 3000, 6000}) {
      const double ratio = forecast.Seconds(tokens, 0) / truth.Seconds(tokens, 0);
      ASSERT_LT(std::max(ratio, 1 / ratio), 1.5)
          << tokens << " tokens at " << truth.base << ", " << truth.token << ", " << truth.pair;
    }
  }
}

// Eight short prompts tell nothing of long ones: the first long one is believed all the same.
TEST(PrefillForecastTest, WhatIsWrongByAnOrderOfMagnitudeIsBelievedAtOnce) {
  PrefillForecast forecast;
  for (int i = 0; i < 50; ++i) forecast.Observe(20 + i % 7, 0, kTruth.Seconds(20 + i % 7, 0));
  // The machine has become ten times as slow.
  forecast.Observe(2000, 0, 10 * kTruth.Seconds(2000, 0));
  EXPECT_NEAR(forecast.Seconds(2000, 0) / (10 * kTruth.Seconds(2000, 0)), 1, 0.5);
  // And ten times as quick as it was.
  forecast.Observe(2000, 0, kTruth.Seconds(2000, 0) / 10);
  EXPECT_NEAR(forecast.Seconds(2000, 0) / (kTruth.Seconds(2000, 0) / 10), 1, 0.5);
}

// By less than that it takes three.
TEST(PrefillForecastTest, AMachineThatBecomesTwiceAsSlowIsBelievedAfterThree) {
  PrefillForecast forecast;
  for (int i = 0; i < 200; ++i) {
    forecast.Observe(1000 + 13 * i, 50 * i, kTruth.Seconds(1000 + 13 * i, 50 * i));
  }
  for (const int64_t tokens : {1000, 3000, 2000})
    forecast.Observe(tokens, 0, 2.2 * kTruth.Seconds(tokens, 0));
  EXPECT_NEAR(forecast.Seconds(1500, 0) / (2.2 * kTruth.Seconds(1500, 0)), 1, 0.3);
}

TEST(PrefillForecastTest, OneStallDoesNotSpoilIt) {
  PrefillForecast forecast;
  for (int i = 0; i < 200; ++i) {
    forecast.Observe(1000 + 13 * i, 50 * i, kTruth.Seconds(1000 + 13 * i, 50 * i));
  }
  forecast.Observe(1000, 0, 600);
  EXPECT_LT(forecast.Seconds(1000, 0), 110 * kTruth.Seconds(1000, 0)) << "two orders of magnitude at a time";
  forecast.Observe(1000, 0, kTruth.Seconds(1000, 0));
  EXPECT_NEAR(forecast.Seconds(1000, 0) / kTruth.Seconds(1000, 0), 1, 0.3) << "over at once";
  EXPECT_NEAR(forecast.Seconds(3000, 5000) / kTruth.Seconds(3000, 5000), 1, 0.5);
}

// Times that vary by a factor of four without any order: hardly ever does a prediction leave their range by
// much. One in 300 such histories has one that is off by more than ten times (9 of 3,000), so of 400 more
// than eight come once in 50,000 runs.
TEST(PrefillForecastTest, NoiseDoesNotThrowItOff) {
  const uint64_t first = TestSeed();
  SCOPED_TRACE(first);
  int thrown_off = 0;
  for (uint64_t seed = first; seed < first + 400; ++seed) {
    PrefillForecast forecast;
    double worst = 1;
    for (uint64_t i = 0; i < 2000; ++i) {
      const auto uncached = 1 + static_cast<int64_t>(UniformAt(seed, 3 * i) * 20'000);
      const auto cached = static_cast<int64_t>(UniformAt(seed, 3 * i + 1) * 20'000);
      forecast.Observe(uncached, cached,
                       kTruth.Seconds(uncached, cached) * (UniformAt(seed, 3 * i + 2) < 0.5 ? 0.5 : 2));
      if (i < 50) continue;
      const double ratio = forecast.Seconds(10'000, 10'000) / kTruth.Seconds(10'000, 10'000);
      worst = std::max({worst, ratio, 1 / ratio});
    }
    if (!(worst < 10)) ++thrown_off;
  }
  EXPECT_LE(thrown_off, 8);
}

// A few tokens after a long prefix take ten times as long as was thought: that is no news of long prompts.
TEST(PrefillForecastTest, AFewTokensTellNothingOfLongPrompts) {
  PrefillForecast forecast;
  constexpr PrefillCost kNoBase = {.base = 0, .token = kTruth.token, .pair = kTruth.pair};
  for (int i = 0; i < 200; ++i) {
    forecast.Observe(1000 + 13 * i, 50 * i, kNoBase.Seconds(1000 + 13 * i, 50 * i));
  }
  for (const double factor : {1000, 1}) {
    forecast.Observe(4, 2000, factor * kNoBase.Seconds(4, 2000));
    EXPECT_NEAR(forecast.Seconds(3000, 5000) / kNoBase.Seconds(3000, 5000), 1, 0.5) << factor;
  }
}

// For many machines together no single observation is news.
TEST(PrefillForecastTest, TheMeanOfManyMachinesIsSteady) {
  PrefillForecast forecast({}, Of::kMany);
  for (int i = 0; i < 400; ++i) {
    const int64_t tokens = 500 + 40 * (i % 50);
    forecast.Observe(tokens, 0, (i % 2 == 0 ? 0.2 : 1.8) * kTruth.Seconds(tokens, 0));
    if (i < 100) continue;
    ASSERT_NEAR(forecast.Seconds(1500, 0) / kTruth.Seconds(1500, 0), 1, 0.4) << i;
  }
}

// On a busy machine the same prompt takes half as long now and twice as long then. Queues are sums: the mean
// it is.
TEST(PrefillForecastTest, IsRightInTheMeanWhereTimesVary) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  PrefillForecast forecast;
  for (uint64_t i = 0; i < 2000; ++i) {
    const auto uncached = 1 + static_cast<int64_t>(UniformAt(seed, 2 * i) * 20'000);
    const auto cached = static_cast<int64_t>(UniformAt(seed, 2 * i + 1) * 20'000);
    forecast.Observe(uncached, cached, kTruth.Seconds(uncached, cached) * (i % 2 == 0 ? 0.5 : 2));
  }
  const double mean = 1.25 * kTruth.Seconds(10'000, 10'000);
  EXPECT_NEAR(forecast.Seconds(10'000, 10'000) / mean, 1, 0.3);
}

TEST(PrefillForecastTest, IsFiniteAndNotNegativeWhateverItIsTold) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  PrefillForecast forecast;
  constexpr int64_t kMaxValue = std::numeric_limits<int64_t>::max();
  for (uint64_t i = 0; i < 2000; ++i) {
    const double pick = UniformAt(seed, 2 * i);
    const double seconds = pick < 0.1   ? -1
                           : pick < 0.2 ? std::nan("")
                           : pick < 0.3 ? std::numeric_limits<double>::infinity()
                           : pick < 0.4 ? 0
                                        : UniformAt(seed, 2 * i + 1) * 1e4;
    forecast.Observe(i % 7 == 0 ? -5 : static_cast<int64_t>(i * i), i % 11 == 0 ? kMaxValue : 0, seconds);
    for (const int64_t tokens : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{100'000}, kMaxValue}) {
      const double predicted = forecast.Seconds(tokens, tokens);
      ASSERT_TRUE(std::isfinite(predicted) && predicted >= 0) << tokens << " at " << i;
      ASSERT_LT(DeadlineOf(absl::UnixEpoch(), predicted, kTargets).due, absl::InfiniteFuture());
      ASSERT_LT(DeadlineOf(absl::UnixEpoch(), predicted, kTargets).late, absl::InfiniteFuture());
    }
  }
}

TEST(VirtualDeadlineTest, ShortOnesPassLongOnesForABoundedTime) {
  const absl::Time noon = absl::UnixEpoch();
  EXPECT_LT(DeadlineOf(noon + absl::Seconds(1), 0.02, kTargets).due, DeadlineOf(noon, 1, kTargets).due);
  EXPECT_LT(DeadlineOf(noon, 0.1, kTargets, -1).due, DeadlineOf(noon, 0.1, kTargets, 0).due);
  // Whatever it takes, and early or late: a prompt goes before what arrives a late target after it.
  for (const double seconds : {0.0, 0.3, 1.9, 3.0, 10.0, 1e9}) {
    const VirtualDeadline mine = DeadlineOf(noon, seconds, kTargets);
    const absl::Time much_later = noon + absl::Seconds(kTargets.late);
    for (const double theirs : {0.0, 1.0, 1e9}) {
      const VirtualDeadline other = DeadlineOf(much_later, theirs, kTargets);
      EXPECT_LE(std::max(mine.due, mine.late), std::min(other.due, other.late)) << seconds << " " << theirs;
    }
  }
}

TEST(VirtualDeadlineTest, TheTargetsFollowTheSlo) {
  EXPECT_DOUBLE_EQ(kTargets.target, 1.95);
  EXPECT_DOUBLE_EQ(kTargets.late, 6);
  const QueueTargets tight = QueueTargets::For(0.5, 0);
  const absl::Time noon = absl::UnixEpoch();
  EXPECT_EQ(DeadlineOf(noon, 0.4, tight).due, noon + absl::Seconds(tight.target));
  EXPECT_EQ(DeadlineOf(noon, 0.4, tight).latest, noon + absl::Seconds(tight.target - 0.4));
  EXPECT_EQ(DeadlineOf(noon, 0.01, tight).due, DeadlineOf(noon, 0.01, kTargets).due) << "its own time counts";
}

TEST(VirtualDeadlineTest, TheTailShareTakesItsPartOffEveryDelay) {
  const absl::Time noon = absl::UnixEpoch();
  const QueueTargets half = QueueTargets::For(2, 0.5), tail = QueueTargets::For(2, 1);
  for (const double seconds : {0.01, 0.5, 3.0}) {
    const VirtualDeadline goodput = DeadlineOf(noon, seconds, kTargets);
    EXPECT_EQ(DeadlineOf(noon, seconds, half).due - noon, (goodput.due - noon) / 2);
    EXPECT_EQ(DeadlineOf(noon, seconds, half).late - noon, (goodput.late - noon) / 2);
    EXPECT_EQ(DeadlineOf(noon, seconds, tail).At(noon), noon);
    EXPECT_EQ(DeadlineOf(noon, seconds, tail).At(noon + absl::Hours(1)), noon) << "first come, first served";
  }
}

TEST(VirtualDeadlineTest, WhoCantMeetTheTargetMakesWayForWhoCan) {
  const absl::Time noon = absl::UnixEpoch();
  const VirtualDeadline deadline = DeadlineOf(noon, 0.5, kTargets);
  const absl::Time just_in_time = noon + absl::Seconds(kTargets.target - 0.5);
  EXPECT_EQ(deadline.At(just_in_time), deadline.due);
  const absl::Time too_late = just_in_time + absl::Milliseconds(1);
  EXPECT_GT(deadline.At(too_late), DeadlineOf(too_late, 0.5, kTargets).At(too_late));
  // One that never could is late from the beginning; of the late, the longer goes first.
  EXPECT_EQ(DeadlineOf(noon, 3, kTargets).At(noon), DeadlineOf(noon, 3, kTargets).late);
  EXPECT_LT(DeadlineOf(noon, 4, kTargets).At(noon), DeadlineOf(noon, 3, kTargets).At(noon));
}

}  // namespace
}  // namespace baton::forecast
