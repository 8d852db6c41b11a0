#include "lab/bench/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/random.h"

namespace baton::lab::bench {
namespace {

// Nearest rank, spelled out.
double Exact(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  for (size_t i = 0; i < values.size(); ++i) {
    if (static_cast<double>(i + 1) >= share * static_cast<double>(values.size())) return values[i];
  }
  return values.back();
}

TEST(SamplesTest, PercentilesAreExact) {
  Samples samples;
  for (const double value : {15.0, 20.0, 35.0, 40.0, 50.0}) samples.Add(value);
  // The textbook example of the method.
  EXPECT_EQ(samples.Percentile(0.05), 15);
  EXPECT_EQ(samples.Percentile(0.30), 20);
  EXPECT_EQ(samples.Percentile(0.40), 20);
  EXPECT_EQ(samples.Percentile(0.50), 35);
  EXPECT_EQ(samples.Percentile(1.00), 50);
  EXPECT_EQ(samples.Percentile(0), 15);
  EXPECT_EQ(samples.Mean(), 32);
  EXPECT_EQ(samples.Max(), 50);
  samples.Add(1);
  EXPECT_EQ(samples.Percentile(0), 1) << "values after a look count too";
}

TEST(SamplesTest, NothingIsZero) {
  EXPECT_EQ(Samples().Percentile(0.5), 0);
  EXPECT_EQ(Samples().Mean(), 0);
  EXPECT_EQ(Samples().Max(), 0);
  EXPECT_EQ(Histogram().Percentile(0.5), 0);
}

TEST(HistogramTest, PercentilesAreWithinATenthOfAPercentOfTheExactOnes) {
  constexpr uint64_t kSeed = 5;
  Histogram histogram;
  Samples samples;
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i) {
    // From 100 ns to 1000 s, evenly over the magnitudes.
    const double value = std::pow(10, -7 + 10 * UniformAt(kSeed, i));
    histogram.Add(value);
    samples.Add(value);
    values.push_back(value);
  }
  for (const double share : {0.0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0}) {
    const double exact = Exact(values, share);
    EXPECT_EQ(samples.Percentile(share), exact) << "seed " << kSeed << " share " << share;
    // Whole nanoseconds at the low end.
    EXPECT_NEAR(histogram.Percentile(share), exact, exact * 0.001 + 1e-9)
        << "seed " << kSeed << " share " << share;
  }
  EXPECT_EQ(histogram.count(), 5000);
  EXPECT_DOUBLE_EQ(histogram.Max(), samples.Max());
  EXPECT_NEAR(histogram.Mean(), samples.Mean(), samples.Mean() * 1e-12);
}

TEST(HistogramTest, StrangeValuesAreClamped) {
  Histogram histogram;
  histogram.Add(-1);
  histogram.Add(0);
  histogram.Add(1e300);
  EXPECT_EQ(histogram.count(), 3);
  EXPECT_EQ(histogram.Percentile(0.5), 0);
  EXPECT_EQ(histogram.Max(), 1e9);
}

}  // namespace
}  // namespace baton::lab::bench
