// Quality lost by packed KV: the shipped model with it against itself with KV in float32. It prints what
// docs/measurements.md shows.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/golden/weights/quality.h"
#include "tests/patience.h"

namespace baton {
namespace {

using tensor::DType;

struct Case {
  DType keys, values;
  double least, most;  // mean KL divergence
};

class KvQualityTest : public testing::TestWithParam<Case> {};

TEST_P(KvQualityTest, StaysCloseToFloats) {
  if (kSanitized) GTEST_SKIP() << "what it measures is the quality of numbers";
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
  auto floats = engine::Engine::Load({.model_folder = folder,
                                      .kv_bytes = int64_t{64} << 20,
                                      .key_dtype = DType::kF32,
                                      .value_dtype = DType::kF32});
  auto packed = engine::Engine::Load({.model_folder = folder,
                                      .kv_bytes = int64_t{64} << 20,
                                      .key_dtype = GetParam().keys,
                                      .value_dtype = GetParam().values});
  ASSERT_TRUE(floats.ok()) << floats.status();
  ASSERT_TRUE(packed.ok()) << packed.status();
  const lab::Distance quality = lab::Compare(**floats, **packed, Conversations(folder), /*threads=*/2);
  std::printf("KV in %s/%s: %s\n", std::string(tensor::Name(GetParam().keys)).c_str(),
              std::string(tensor::Name(GetParam().values)).c_str(), Describe(quality).c_str());
  ASSERT_GT(quality.positions, 5000);
  EXPECT_GT(quality.mean, GetParam().least) << "not of so few bits";
  EXPECT_LE(quality.mean, GetParam().most);
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, KvQualityTest,
    testing::Values(Case{DType::kBF16, DType::kBF16, 1e-9, 1e-3}, Case{DType::kI8, DType::kI8, 1e-8, 3e-3},
                    Case{DType::kI8, DType::kI4, 1e-5, 8e-3}, Case{DType::kI4, DType::kI4, 1e-5, 2e-2}),
    [](const auto& info) {
      return std::string(tensor::Name(info.param.keys)) + "_" + std::string(tensor::Name(info.param.values));
    });

}  // namespace
}  // namespace baton
