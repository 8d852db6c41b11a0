#include "common/model/quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace baton::model {
namespace {

using kernels::WeightView;
using tensor::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

WeightView ViewOf(const std::vector<float>& values, int64_t rows) {
  return {values.data(), DType::kF32, rows, static_cast<int64_t>(values.size()) / rows};
}

std::vector<int8_t> IntegersOf(const ConvertedMatrix& matrix) {
  std::vector<int8_t> integers(matrix.values.size());
  std::memcpy(integers.data(), matrix.values.data(), integers.size());
  return integers;
}

TEST(QuantizerTest, ARowIsScaledByItsLargestMagnitude) {
  Quantizer quantizer(WeightPrecision::kInt8, 1);
  // Halves go to the even integer.
  const std::vector<float> values = {-127, 0.5f,  1.5f,   -2.5f, 126.4f, 0, 0,    0,
                                     0,    -0.0f, 1e-31f, 0,     0,      0, 0.25f};
  const auto made = quantizer.Convert(ViewOf(values, 3), {0, 5});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(IntegersOf(*made), ElementsAre(-127, 0, 2, -2, 126, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127));
  EXPECT_THAT(made->scales, ElementsAre(1.0f, 0.0f, 0.25f / 127.0f));
  EXPECT_EQ(made->view.quantization.bits, 8);
  EXPECT_EQ(made->view.quantization.group, 5);
  EXPECT_EQ(kernels::ValueAt(made->view, 0, 3), -2.0f);
  EXPECT_EQ(kernels::ValueAt(made->view, 2, 4), 0.25f / 127.0f * 127.0f);
}

TEST(QuantizerTest, ColumnsOfASplitAreThoseOfTheWhole) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  constexpr int64_t kRows = 70, kCols = 24;
  std::vector<float> values(kRows * kCols);
  for (float& value : values) value = normal(random);
  for (const WeightPrecision precision : {WeightPrecision::kInt8, WeightPrecision::kBF16}) {
    Quantizer one(precision, 1), three(precision, 3);
    const auto whole = one.Convert(ViewOf(values, kRows), {0, kCols});
    const auto right = three.Convert(ViewOf(values, kRows), {16, 8});
    ASSERT_TRUE(whole.ok() && right.ok());
    EXPECT_EQ(whole->scales, right->scales);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < 8; ++c) {
        ASSERT_EQ(kernels::ValueAt(right->view, r, c), kernels::ValueAt(whole->view, r, 16 + c));
        const float bound =
            precision == WeightPrecision::kInt8 ? whole->scales[static_cast<size_t>(r)] / 2 : 0.02f;
        ASSERT_NEAR(kernels::ValueAt(right->view, r, c), values[static_cast<size_t>(r * kCols + 16 + c)],
                    bound * 1.0001f);
      }
    }
  }
}

TEST(QuantizerTest, ItReadsWhatFilesStoreAndChangesWhatDiffers) {
  Quantizer stored(WeightPrecision::kStored, 1), narrow(WeightPrecision::kBF16, 1),
      integers(WeightPrecision::kInt8, 1);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_FALSE(stored.Changes(dtype));
    EXPECT_EQ(narrow.Changes(dtype), dtype != DType::kBF16);
    EXPECT_TRUE(integers.Changes(dtype));
  }
  // 1, -2 and 0.5, as bfloat16 and as float16, at an odd address.
  for (const auto& [dtype, bits] :
       {std::pair<DType, std::array<uint16_t, 3>>{DType::kBF16, {0x3F80, 0xC000, 0x3F00}},
        {DType::kF16, {0x3C00, 0xC000, 0x3800}}}) {
    std::vector<std::byte> bytes(1 + sizeof bits);
    std::memcpy(bytes.data() + 1, bits.data(), sizeof bits);
    const auto made = integers.Convert({bytes.data() + 1, dtype, 1, 3}, {0, 3});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_THAT(IntegersOf(*made), ElementsAre(64, -127, 32)) << tensor::Name(dtype);
    const auto half = narrow.Convert({bytes.data() + 1, dtype, 1, 3}, {0, 3});
    ASSERT_TRUE(half.ok()) << half.status();
    for (int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(kernels::ValueAt(half->view, 0, c), tensor::ValueAt(bytes.data() + 1, dtype, c));
    }
  }
}

TEST(QuantizerTest, WhatCantBeAnIntegerIsRefused) {
  Quantizer quantizer(WeightPrecision::kInt8, 3);
  std::vector<float> values(100 * 2, 1.0f);
  values[2 * 90] = std::numeric_limits<float>::infinity();
  values[2 * 31 + 1] = std::numeric_limits<float>::quiet_NaN();
  const auto made = quantizer.Convert(ViewOf(values, 100), {0, 2});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("row 31 holds"));
  const std::vector<float> wide(70000);
  EXPECT_THAT(std::string(quantizer.Convert(ViewOf(wide, 1), {0, 10}).status().message()),
              HasSubstr("rows of at most 66311 values, not 70000"));
}

TEST(QuantizerTest, PrecisionsHaveTheNamesOfTheFlag) {
  EXPECT_EQ(Name(WeightPrecision::kStored), "stored");
  EXPECT_EQ(Name(WeightPrecision::kBF16), "bf16");
  EXPECT_EQ(Name(WeightPrecision::kInt8), "int8");
}

}  // namespace
}  // namespace baton::model
