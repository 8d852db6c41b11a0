#include "engine/model/lattice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace baton::model {
namespace {

struct Rounded {
  float scale = 0;
  std::vector<uint8_t> factors, zeros, values;

  explicit Rounded(const std::vector<float>& row)
      : factors(static_cast<size_t>(LatticeGroups(std::ssize(row)))),
        zeros(factors.size()),
        values(row.size()) {
    scale = RoundToLattice(row, {factors, zeros, values});
  }
  int Integer(size_t c) const { return factors[c / kLatticeGroup] * (values[c] - zeros[c / kLatticeGroup]); }
};

double ErrorOf(const std::vector<float>& row, size_t group, double scale, int factor, int zero) {
  double error = 0;
  for (size_t c = group * kLatticeGroup; c < std::min(row.size(), (group + 1) * kLatticeGroup); ++c) {
    double least = std::numeric_limits<double>::infinity();
    for (int value = 0; value < 16; ++value) {
      const int integer = factor * (value - zero);
      if (std::abs(integer) <= 127) least = std::min(least, std::abs(row[c] - scale * integer));
    }
    error += least * least;
  }
  return error;
}

TEST(LatticeTest, NumbersOfTheLatticeStayWhatTheyAre) {
  // Factor 5 and zero 3, then factor 3 and zero 12; the ends of both ranges are there.
  std::vector<float> row;
  for (int i = 0; i < 16; ++i) row.push_back(0.25f * static_cast<float>(5 * (i - 3)));
  for (int i = 0; i < 16; ++i) row.push_back(0.25f * static_cast<float>(3 * (i - 12)));
  // The largest is 16 * 7 = 112 of 0.25: the scale is that of 60 / 127 or 75 / 240 of it. Make it 0.25.
  for (int i = 0; i < 16; ++i) row.push_back(0.25f * static_cast<float>(16 * (i - 8) + (i == 0 ? 1 : 0)));
  const Rounded rounded(row);
  EXPECT_EQ(rounded.scale, 0.25f);
  for (size_t c = 0; c + 16 < row.size(); ++c) EXPECT_EQ(rounded.Integer(c) * 0.25f, row[c]) << c;
  EXPECT_EQ(rounded.factors[0], 5);
  EXPECT_EQ(rounded.zeros[0], 3);
  EXPECT_EQ(rounded.factors[1], 3);
  EXPECT_EQ(rounded.zeros[1], 12);
}

TEST(LatticeTest, IntegersAreThoseOfInt8AndAboutTheNearestThatThereAre) {
  std::mt19937 random(5);
  std::student_t_distribution<float> heavy(4);
  double ours = 0, best = 0, size = 0;
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<float> row(static_cast<size_t>(17 + trial * 3));
    for (float& value : row) value = heavy(random) * std::ldexp(1.0f, trial - 20);
    const Rounded rounded(row);
    for (size_t g = 0; g < rounded.factors.size(); ++g) {
      ASSERT_GE(rounded.factors[g], 1);
      ASSERT_LE(rounded.factors[g], 16);
      ASSERT_LE(rounded.zeros[g], 15);
      double least = std::numeric_limits<double>::infinity();
      for (int factor = 1; factor <= 16; ++factor) {
        for (int zero = 0; zero < 16; ++zero) {
          least = std::min(least, ErrorOf(row, g, rounded.scale, factor, zero));
        }
      }
      const double scale = std::ldexp(1.0, 2 * (20 - trial));
      best += least * scale;
      ours += ErrorOf(row, g, rounded.scale, rounded.factors[g], rounded.zeros[g]) * scale;
    }
    double error = 0;
    for (size_t c = 0; c < row.size(); ++c) {
      ASSERT_LE(rounded.values[c], 15);
      ASSERT_LE(std::abs(rounded.Integer(c)), 127);
      const double off = row[c] - double{rounded.scale} * rounded.Integer(c);
      error += off * off * std::ldexp(1.0, 2 * (20 - trial));
      size += double{row[c]} * row[c] * std::ldexp(1.0, 2 * (20 - trial));
    }
    // The values are the nearest for their factors and zeros.
    double expected = 0;
    for (size_t g = 0; g < rounded.factors.size(); ++g) {
      expected += ErrorOf(row, g, rounded.scale, rounded.factors[g], rounded.zeros[g]) *
                  std::ldexp(1.0, 2 * (20 - trial));
    }
    ASSERT_NEAR(error, expected, expected * 1e-3);
  }
  EXPECT_LE(ours, best * 1.05) << "the search leaves out good ones";
  EXPECT_LT(std::sqrt(ours / size), 0.1);
}

TEST(LatticeTest, RowsOfZerosAndTinyNumbersAreZeros) {
  for (const float value : {0.0f, -0.0f, 1e-31f, 1e-45f}) {
    const Rounded rounded(std::vector<float>(20, value));
    EXPECT_EQ(rounded.scale, 0);
    for (size_t c = 0; c < 20; ++c) EXPECT_EQ(rounded.Integer(c), 0);
  }
}

TEST(LatticeTest, ScaleAndFactorsFollowFromTheScalesOfTheGroups) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> row(200);
    for (float& value : row) value = normal(random) * 0.02f;
    const Rounded rounded(row);
    std::vector<float> scales;
    int common = 0;
    for (const uint8_t factor : rounded.factors) {
      common = std::gcd(common, factor);
      scales.push_back(rounded.scale * static_cast<float>(factor));
      EXPECT_EQ(scales.back() / static_cast<float>(factor), rounded.scale) << "rounded";
    }
    EXPECT_EQ(common, 1);
    std::vector<uint8_t> factors(scales.size());
    const std::optional<float> scale = LatticeOf(scales, factors);
    ASSERT_TRUE(scale.has_value());
    EXPECT_EQ(*scale, rounded.scale);
    EXPECT_EQ(factors, rounded.factors);
    // Scales of others are products of one number by chance only.
    for (float& value : scales) value *= 1 + 0.001f * normal(random);
    EXPECT_FALSE(LatticeOf(scales, factors).has_value());
  }
  std::vector<uint8_t> factors(2);
  EXPECT_EQ(LatticeOf(std::vector<float>{0, 0}, factors), 0.0f);
  EXPECT_EQ(LatticeOf(std::vector<float>{0.5f, 8.0f}, factors), 0.5f);
  EXPECT_EQ(factors[1], 16);
  EXPECT_FALSE(LatticeOf(std::vector<float>{0.5f, 8.5f}, factors).has_value());
  EXPECT_FALSE(LatticeOf(std::vector<float>{0.5f, 0}, factors).has_value());
  EXPECT_FALSE(LatticeOf(std::vector<float>{0.5f, -1}, factors).has_value());
  EXPECT_FALSE(LatticeOf(std::vector<float>{0.5f, INFINITY}, factors).has_value());
  EXPECT_FALSE(LatticeOf(std::vector<float>{1e-30f, 1e30f}, factors).has_value());
}

}  // namespace
}  // namespace baton::model
