#include "engine/kernels/weight_view.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace baton::kernels {
namespace {

using tensor::DType;

TEST(WeightViewTest, NumbersAreReadByTheirDType) {
  const std::array<float, 4> floats = {1.5f, -2, 0.25f, 8};
  EXPECT_EQ(ValueAt({floats.data(), DType::kF32, 2, 2}, 1, 0), 0.25f);
  const std::array<uint16_t, 2> halves = {tensor::ToBF16(3), tensor::ToBF16(-0.5f)};
  EXPECT_EQ(ValueAt({halves.data(), DType::kBF16, 1, 2}, 0, 1), -0.5f);
  const std::array<uint16_t, 1> f16 = {0x3C00};
  EXPECT_EQ(ValueAt({f16.data(), DType::kF16, 1, 1}, 0, 0), 1.0f);
}

TEST(WeightViewTest, UnalignedNumbersAreReadAsWell) {
  std::array<std::byte, 9> bytes = {};
  const float value = 7.25f;
  std::memcpy(bytes.data() + 5, &value, sizeof value);
  EXPECT_EQ(ValueAt({bytes.data() + 1, DType::kF32, 1, 2}, 0, 1), value);
}

// Three columns of group 2: the last group of a row is shorter.
TEST(WeightViewTest, SignedBytesHaveAScalePerGroup) {
  const std::array<int8_t, 6> values = {1, -2, 3, 127, -128, 5};
  const std::array<float, 4> scales = {0.5f, 2, 0.25f, 10};
  const WeightView view = {
      values.data(), DType::kI8, 2, 3, {.bits = 8, .group = 2, .scales = scales.data(), .zeros = nullptr}};
  EXPECT_TRUE(view.quantized());
  EXPECT_EQ(ValueAt(view, 0, 0), 0.5f);
  EXPECT_EQ(ValueAt(view, 0, 1), -1);
  EXPECT_EQ(ValueAt(view, 0, 2), 6);
  EXPECT_EQ(ValueAt(view, 1, 0), 31.75f);
  EXPECT_EQ(ValueAt(view, 1, 1), -32);
  EXPECT_EQ(ValueAt(view, 1, 2), 50);
}

// Rows of three 4-bit values take two bytes each, and the lower half of a byte comes first.
TEST(WeightViewTest, HalfBytesWithZerosAreUnsigned) {
  const std::array<uint8_t, 4> values = {0x2F, 0x0A, 0x80, 0x07};
  const std::array<float, 2> scales = {1, 0.5f};
  const std::array<uint8_t, 2> zeros = {8, 0};
  const Quantization quantization = {.bits = 4, .group = 3, .scales = scales.data(), .zeros = zeros.data()};
  const WeightView view = {values.data(), DType::kI8, 2, 3, quantization};
  EXPECT_EQ(ValueAt(view, 0, 0), 7);
  EXPECT_EQ(ValueAt(view, 0, 1), -6);
  EXPECT_EQ(ValueAt(view, 0, 2), 2);
  EXPECT_EQ(ValueAt(view, 1, 0), 0);
  EXPECT_EQ(ValueAt(view, 1, 1), 4);
  EXPECT_EQ(ValueAt(view, 1, 2), 3.5f);
}

TEST(WeightViewTest, HalfBytesWithoutZerosAreSigned) {
  const std::array<uint8_t, 1> values = {0xF7};
  const float scale = 2;
  const WeightView view = {
      values.data(), DType::kI8, 1, 2, {.bits = 4, .group = 2, .scales = &scale, .zeros = nullptr}};
  EXPECT_EQ(ValueAt(view, 0, 0), 14);
  EXPECT_EQ(ValueAt(view, 0, 1), -2);
}

}  // namespace
}  // namespace baton::kernels
