#include "lab/bench/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace baton::lab::bench {
namespace {

TEST(ArrivalsTest, FixedIsEvenAndDoesNotDrift) {
  Arrivals arrivals(Arrivals::Kind::kFixed, 3, 1);
  absl::Duration last;
  for (int i = 0; i < 3'000'000; ++i) last = arrivals.Next();
  EXPECT_NEAR(absl::ToDoubleSeconds(last), 2'999'999 / 3.0, 1e-6);
}

TEST(ArrivalsTest, PoissonHasItsRateAndItsSpread) {
  constexpr double kRate = 50;
  constexpr int kArrivals = 50'000;
  constexpr uint64_t kSeed = 3;
  Arrivals arrivals(Arrivals::Kind::kPoisson, kRate, kSeed);
  std::vector<double> gaps;
  absl::Duration last;
  for (int i = 0; i < kArrivals; ++i) {
    const absl::Duration next = arrivals.Next();
    ASSERT_GE(next, last);
    gaps.push_back(absl::ToDoubleSeconds(next - last));
    last = next;
  }
  double mean = 0;
  for (const double gap : gaps) mean += gap / kArrivals;
  double variance = 0;
  int longer = 0;
  for (const double gap : gaps) {
    variance += (gap - mean) * (gap - mean) / kArrivals;
    longer += gap > 1 / kRate;
  }
  // Exponential gaps: mean and deviation 1/rate, and a share of 1/e is longer than the mean.
  EXPECT_NEAR(mean * kRate, 1, 0.02) << "seed " << kSeed;
  EXPECT_NEAR(std::sqrt(variance) * kRate, 1, 0.03) << "seed " << kSeed;
  EXPECT_NEAR(static_cast<double>(longer) / kArrivals, std::exp(-1), 0.01) << "seed " << kSeed;
}

TEST(ArrivalsTest, TheSameSeedArrivesAtTheSameTimes) {
  Arrivals a(Arrivals::Kind::kPoisson, 5, 9);
  Arrivals b(Arrivals::Kind::kPoisson, 5, 9);
  Arrivals c(Arrivals::Kind::kPoisson, 5, 10);
  const absl::Duration first = a.Next();
  EXPECT_EQ(first, b.Next());
  EXPECT_NE(first, c.Next());
}

}  // namespace
}  // namespace baton::lab::bench
