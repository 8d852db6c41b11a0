#include "engine/kv/store/i4_vector.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace baton::kv {
namespace {

std::vector<float> Normals(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// The values of `codes`, rotated back.
std::vector<float> Decode(const I4Vector& codes, float scale, int dim) {
  std::vector<float> values(static_cast<size_t>(dim));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(kI4Levels[codes[i]]);
  Rotate(values.data(), dim);
  return values;
}

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{a[i]} * a[i];
  }
  return std::sqrt(error / size);
}

// The rotation by its definition: sign of entry (i, j) is the parity of the bits that i and j share.
TEST(I4VectorTest, RotatesByTheHadamardMatrixOfEachRun) {
  for (int dim : {8, 24, 64, 80, 96, 128, 256}) {
    const int run = dim & -dim;
    const std::vector<float> x = Normals(dim, 1);
    std::vector<float> rotated = x;
    Rotate(rotated.data(), dim);
    for (int i = 0; i < dim; ++i) {
      double expected = 0;
      for (int j = 0; j < run; ++j) {
        const int sign = std::popcount(static_cast<unsigned>((i % run) & j)) % 2 == 0 ? 1 : -1;
        expected += sign * double{x[static_cast<size_t>(i / run * run + j)]};
      }
      EXPECT_NEAR(rotated[static_cast<size_t>(i)], expected / std::sqrt(run), 1e-5) << dim << ", " << i;
    }
    Rotate(rotated.data(), dim);
    EXPECT_LT(RelativeError(x, rotated), 1e-6) << "it is its own inverse";
  }
}

// The best that 16 levels can do for a normal distribution is 0.0975 (Max 1960).
TEST(I4VectorTest, ErrorIsThatOfTheBestLevels) {
  double total = 0;
  constexpr int kVectors = 200;
  for (uint32_t seed = 0; seed < kVectors; ++seed) {
    const std::vector<float> x = Normals(128, seed + 10);
    I4Vector codes;
    const float scale = EncodeI4(x.data(), 128, codes);
    const double error = RelativeError(x, Decode(codes, scale, 128));
    EXPECT_LT(error, 0.15);
    total += error;
  }
  EXPECT_LT(total / kVectors, 0.1);
  EXPECT_GT(total / kVectors, 0.08) << "better than 4 bits can be";
}

// Channels a hundred times as large as the rest, as keys have them: each still costs its share alone.
TEST(I4VectorTest, OneLargeNumberDoesNotDrownTheRest) {
  std::vector<float> x = Normals(128, 3);
  x[17] = 100;
  I4Vector codes;
  const float scale = EncodeI4(x.data(), 128, codes);
  const std::vector<float> back = Decode(codes, scale, 128);
  EXPECT_LT(RelativeError(x, back), 0.2);
  EXPECT_NEAR(back[17], 100, 10);
}

// Levels in order, symmetric, each number at the level that is nearest.
TEST(I4VectorTest, CodesAreTheNearestLevels) {
  for (size_t i = 1; i < kI4Levels.size(); ++i) EXPECT_GT(kI4Levels[i], kI4Levels[i - 1]);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(kI4Levels[i], -kI4Levels[15 - i]);
  std::vector<float> x = Normals(64, 5);
  I4Vector codes;
  EncodeI4(x.data(), 64, codes);
  Rotate(x.data(), 64);
  double squares = 0;
  for (float value : x) squares += double{value} * value;
  const double by = 46.476 / std::sqrt(squares / 64);
  for (size_t i = 0; i < x.size(); ++i) {
    size_t nearest = 0;
    for (size_t c = 0; c < 16; ++c) {
      if (std::abs(x[i] * by - kI4Levels[c]) < std::abs(x[i] * by - kI4Levels[nearest])) nearest = c;
    }
    EXPECT_EQ(codes[i], nearest) << x[i] * by;
  }
}

}  // namespace
}  // namespace baton::kv
