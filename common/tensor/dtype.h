// DType: how numbers lie in memory; and the conversions between them, one value at a time (the slow, obvious
// twins of what kernels do by the vector). Pure functions, any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::tensor {

// kF8 is e4m3 (OCP 8-bit floating point: 3 bits of mantissa, largest 448, no infinities). kI4 are codes of 4
// bits, two in a byte, which kv/store/i4_vector.h explains. These two and kI8 are for KV only, where each
// vector has a scale of its own.
enum class DType : uint8_t { kF32, kBF16, kF16, kF8, kI8, kI4 };

constexpr int BitsOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 32;
    case DType::kBF16:
    case DType::kF16:
      return 16;
    case DType::kF8:
    case DType::kI8:
      return 8;
    case DType::kI4:
      return 4;
  }
  return 0;
}

// Bytes of one value; 0 of kI4, whose values have none of their own.
constexpr int SizeOf(DType dtype) { return BitsOf(dtype) / 8; }

// True if values have a meaning only with a scale.
constexpr bool IsScaled(DType dtype) { return BitsOf(dtype) <= 8; }

// Largest magnitude of kI8 and kF8: a vector is divided by its own largest magnitude over this.
constexpr float LargestOf(DType dtype) { return dtype == DType::kI8 ? 127.0f : 448.0f; }

// "f32", "bf16", "f16", "f8", "i8", "i4": as on the wire, in flags and in messages.
std::string_view Name(DType dtype);

// Inverse of Name. INVALID_ARGUMENT names what is known.
absl::StatusOr<DType> DTypeFromName(std::string_view name);

// bfloat16 is the upper half of a float32.
constexpr float FromBF16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
constexpr uint16_t ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// IEEE 754 binary16, subnormals included.
float FromF16(uint16_t bits);

// e4m3: round to nearest, ties to even; what is larger than 448 becomes 448; NaN stays NaN.
float FromF8(uint8_t bits);
uint8_t ToF8(float value);

// Value `i` of an array that need not be aligned; of a scaled dtype, before its scale. Not of kI4.
inline float ValueAt(const void* data, DType dtype, int64_t i) {
  const auto* at = static_cast<const std::byte*>(data) + i * SizeOf(dtype);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (dtype == DType::kF8) return FromF8(static_cast<uint8_t>(*at));
  if (dtype == DType::kI8) return static_cast<int8_t>(*at);
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::kBF16 ? FromBF16(bits) : FromF16(bits);
}

}  // namespace baton::tensor
