#include "common/tensor/dtype.h"

#include <cmath>
#include <limits>

#include "fmt/format.h"

namespace baton::tensor {

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  return "unknown";
}

absl::StatusOr<DType> DTypeFromName(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (Name(dtype) == name) return dtype;
  }
  return absl::InvalidArgumentError(fmt::format("unknown dtype \"{}\": use f32, bf16 or f16", name));
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

}  // namespace baton::tensor
