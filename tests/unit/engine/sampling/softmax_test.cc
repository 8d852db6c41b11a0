#include "engine/sampling/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/engine/sampling/specials.h"

namespace baton::sampling {
namespace {

TEST(SoftmaxTest, MaxPassesOverNan) {
  EXPECT_EQ(Max({}), -kInfinity);
  EXPECT_EQ(Max(std::vector<float>{kNan, kNan}), -kInfinity);
  // In every lane and in the rest behind the lanes.
  for (int at = 0; at < 19; ++at) {
    std::vector<float> logits(19, -3.0f);
    logits[(at + 1) % 19] = kNan;
    logits[at] = -2.0f;
    EXPECT_EQ(Max(logits), -2.0f) << at;
  }
}

TEST(SoftmaxTest, WeightIsTheExponential) {
  EXPECT_EQ(Weight(5.0f, 5.0f, 1.0), 1.0);
  EXPECT_EQ(Weight(5.0f, 5.0f, 1e44), 1.0);
  EXPECT_EQ(Weight(4.999f, 5.0f, 1e44), 0.0);
  EXPECT_EQ(Weight(-kInfinity, 5.0f, 1.0), 0.0);
  EXPECT_EQ(Weight(kNan, 5.0f, 1.0), 0.0);
  EXPECT_EQ(Weight(-std::numeric_limits<float>::max(), std::numeric_limits<float>::max(), 1e44), 0.0);
  constexpr uint32_t kSeed = 3;
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> logit(-680, 0);
  std::uniform_real_distribution<float> near(-1, 0);
  for (int i = 0; i < 100'000; ++i) {
    for (const float x : {logit(random), near(random)}) {
      const double expected = std::exp(static_cast<double>(x));
      ASSERT_NEAR(Weight(x, 0.0f, 1.0), expected, 4.5e-16 * expected)
          << "seed " << kSeed << ", exp(" << x << ")";
    }
  }
}

TEST(SoftmaxTest, SumIsOfTheVeryWeights) {
  constexpr uint32_t kSeed = 4;
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal(0, 4);
  for (const size_t size : {0, 1, 7, 8, 9, 1000, 1003}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = normal(random);
    if (size > 8) logits[5] = kNan;
    const float max = Max(logits);
    // The sum's definition: the rest behind the last whole eight, then eight interleaved sums in turn.
    std::vector<double> weights(size);
    Weights(logits, max, 0.5, weights);
    double lanes[8] = {};
    const size_t whole = size / 8 * 8;
    double expected = 0;
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(weights[i], Weight(logits[i], max, 0.5));
      (i < whole ? lanes[i % 8] : expected) += weights[i];
    }
    for (const double lane : lanes) expected += lane;
    EXPECT_EQ(WeightSum(logits, max, 0.5), expected) << "seed " << kSeed << ", size " << size;
  }
}

}  // namespace
}  // namespace baton::sampling
