#include "common/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace baton::tensor {
namespace {

TEST(DTypeTest, NamesAndSizesGoTogether) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8, DType::kI4}) {
    const auto back = DTypeFromName(Name(dtype));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, dtype);
    EXPECT_EQ(IsScaled(dtype), BitsOf(dtype) <= 8);
    EXPECT_EQ(SizeOf(dtype), BitsOf(dtype) / 8);
  }
  EXPECT_EQ(DTypeFromName("f64").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DTypeTest, EveryF8ComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = FromF8(static_cast<uint8_t>(bits));
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(ToF8(value) & 0x7F, 0x7F);
    } else {
      EXPECT_EQ(ToF8(value), bits);
    }
  }
  EXPECT_EQ(FromF8(0x7E), 448.0f);
  EXPECT_EQ(FromF8(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(FromF8(0x38), 1.0f);
}

TEST(DTypeTest, F8RoundsToTheNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7E; ++bits) {
    const float low = FromF8(static_cast<uint8_t>(bits)), high = FromF8(static_cast<uint8_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact: one more bit
    EXPECT_EQ(ToF8(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(ToF8(std::nextafter(middle, low)), bits);
    EXPECT_EQ(ToF8(std::nextafter(middle, high)), bits + 1);
    EXPECT_EQ(ToF8(-std::nextafter(middle, high)), (bits + 1) | 0x80);
  }
  EXPECT_EQ(ToF8(1e9f), 0x7E);
  EXPECT_EQ(ToF8(-INFINITY), 0xFE);
  EXPECT_EQ(ToF8(1e-9f), 0);
}

}  // namespace
}  // namespace baton::tensor
