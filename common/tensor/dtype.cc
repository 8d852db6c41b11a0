#include "common/tensor/dtype.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::tensor {

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF8:
      return "f8";
    case DType::kI8:
      return "i8";
    case DType::kI4:
      return "i4";
  }
  return "unknown";
}

absl::StatusOr<DType> DTypeFromName(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8, DType::kI4}) {
    if (Name(dtype) == name) return dtype;
  }
  return absl::InvalidArgumentError(
      fmt::format("unknown dtype \"{}\": use f32, bf16, f16, f8, i8 or i4", name));
}

float FromF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

float FromF8(uint8_t bits) {
  const int exponent = (bits >> 3) & 0xF;
  const int mantissa = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  return sign * std::ldexp(static_cast<float>(mantissa + 8), exponent - 10);
}

uint8_t ToF8(float value) {
  if (std::isnan(value)) return 0x7F;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::min(std::abs(value), LargestOf(DType::kF8));
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m 2^exponent, m in [0.5, 1)
  // Below 2^-6 numbers are multiples of 2^-9; above, they have three bits after the leading one.
  const int lowest = std::max(exponent - 4, -9);
  auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -lowest)));  // ties to even
  if (lowest == -9) return static_cast<uint8_t>(sign | steps);  // 8 and up run on into the normal numbers
  int biased = lowest + 10;
  if (steps == 16) {
    steps = 8;
    ++biased;
  }
  return static_cast<uint8_t>(sign | (biased << 3) | (steps - 8));
}

}  // namespace baton::tensor
