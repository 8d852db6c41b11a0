// Quality lost by integer weights: the shipped model with them against itself as stored (bfloat16). It prints
// what docs/measurements.md shows.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/golden/weights/quality.h"
#include "tests/patience.h"

namespace baton {
namespace {

lab::Distance Measure(model::WeightPrecision precision) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
  const auto load = [&folder](model::WeightPrecision weights) {
    return engine::Engine::Load({.model_folder = folder,
                                 .kv_bytes = int64_t{64} << 20,
                                 .key_dtype = tensor::DType::kF32,
                                 .value_dtype = tensor::DType::kF32,
                                 .weights = weights});
  };
  const auto stored = load(model::WeightPrecision::kStored), integers = load(precision);
  EXPECT_TRUE(stored.ok()) << stored.status();
  EXPECT_TRUE(integers.ok()) << integers.status();
  if (!stored.ok() || !integers.ok()) return {};
  const lab::Distance quality = lab::Compare(**stored, **integers, Conversations(folder), /*threads=*/2);
  std::printf("%s: %s\n", std::string(Name(precision)).c_str(), Describe(quality).c_str());
  return quality;
}

TEST(WeightsQualityTest, Int8StaysCloseToWhatIsStored) {
  if (kSanitized) GTEST_SKIP() << "what it measures is the quality of numbers";
  const lab::Distance quality = Measure(model::WeightPrecision::kInt8);
  ASSERT_GT(quality.positions, 5000);
  EXPECT_GT(quality.mean, 1e-7) << "both have the same weights";
  EXPECT_LE(quality.mean, 0.003);
  EXPECT_NEAR(quality.perplexity / quality.perplexity_reference, 1, 0.005);
}

TEST(WeightsQualityTest, Int4StaysCloseToWhatIsStored) {
  if (kSanitized) GTEST_SKIP() << "what it measures is the quality of numbers";
  const lab::Distance quality = Measure(model::WeightPrecision::kInt4);
  ASSERT_GT(quality.positions, 5000);
  EXPECT_GT(quality.mean, 0.003) << "not of 4 bits";
  EXPECT_LE(quality.mean, 0.2);
}

}  // namespace
}  // namespace baton
