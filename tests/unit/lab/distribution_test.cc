#include "lab/bench/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace baton::lab::bench {
namespace {

constexpr uint64_t kSeed = 11;
constexpr int kDraws = 20'000;

std::vector<double> Draw(const char* text) {
  const Distribution distribution = *Distribution::Parse(text);
  std::vector<double> values;
  for (int i = 0; i < kDraws; ++i) values.push_back(distribution.Sample(kSeed, Purpose::kPromptLength, i));
  return values;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double Deviation(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(DistributionTest, FixedIsFixed) {
  for (const char* text : {"17", "fixed:17"}) {
    EXPECT_EQ(Distribution::Parse(text)->SampleCount(kSeed, Purpose::kPromptLength, 3), 17);
  }
}

TEST(DistributionTest, UniformCountsAreEquallyLikelyEndsIncluded) {
  const Distribution distribution = *Distribution::Parse("uniform:3:6");
  std::map<int64_t, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[distribution.SampleCount(kSeed, Purpose::kPromptLength, i)];
  ASSERT_EQ(counts.size(), 4u);
  for (int64_t value = 3; value <= 6; ++value) EXPECT_NEAR(counts[value], kDraws / 4, kDraws / 50) << value;
}

TEST(DistributionTest, NormalHasItsMoments) {
  const std::vector<double> values = Draw("normal:500:50");
  EXPECT_NEAR(Mean(values), 500, 2);
  EXPECT_NEAR(Deviation(values), 50, 2);
}

TEST(DistributionTest, LogNormalHasItsMedianAndSpread) {
  std::vector<double> values = Draw("lognormal:200:0.8");
  std::sort(values.begin(), values.end());
  EXPECT_NEAR(values[kDraws / 2], 200, 6);
  // 84.1% of a normal lie below one standard deviation.
  EXPECT_NEAR(std::log(values[static_cast<size_t>(0.8413 * kDraws)] / 200), 0.8, 0.03);
}

TEST(DistributionTest, NeverBelowTheLeast) {
  const Distribution distribution = *Distribution::Parse("normal:1:100");
  for (int i = 0; i < kDraws; ++i) {
    EXPECT_GE(distribution.SampleCount(kSeed, Purpose::kOutputLength, i), 1);
    EXPECT_GE(distribution.Sample(kSeed, Purpose::kOutputLength, i), 0);
  }
}

TEST(DistributionTest, ADrawIsAFunctionOfSeedPurposeAndIndex) {
  const Distribution d = *Distribution::Parse("uniform:0:1000000");
  EXPECT_EQ(d.Sample(1, Purpose::kPromptLength, 5), d.Sample(1, Purpose::kPromptLength, 5));
  EXPECT_NE(d.Sample(1, Purpose::kPromptLength, 5), d.Sample(2, Purpose::kPromptLength, 5));
  EXPECT_NE(d.Sample(1, Purpose::kPromptLength, 5), d.Sample(1, Purpose::kOutputLength, 5));
  EXPECT_NE(d.Sample(1, Purpose::kPromptLength, 5), d.Sample(1, Purpose::kPromptLength, 6));
}

TEST(DistributionTest, RefusesNonsense) {
  for (const char* bad :
       {"", "x", "-1", "fixed", "fixed:", "fixed:1:2", "uniform:5:3", "uniform:1", "normal:1", "normal:1:2:3",
        "lognormal:0:1", "lognormal:5:99", "zipf:1:2", "1e99", "nan", "inf"}) {
    EXPECT_EQ(Distribution::Parse(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace baton::lab::bench
