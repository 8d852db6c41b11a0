// A key or a value in 4 bits per number (DType::kI4).
//
// The vector is rotated first: each aligned run of 2^n numbers goes through a Walsh-Hadamard transform, which
// keeps dot products and spreads every large number over the whole run (as in arXiv 2404.00456). What comes
// out is close to normally distributed, whatever went in. So the 16 levels are those that round a normal
// distribution with the least mean square error (Lloyd 1982, Max 1960), scaled to integers; a vector has one
// float scale, which makes its error least once its levels are chosen:
//
//   y = Rotate(x),  code[i] = nearest level to y[i] 46.476 / rms(y),  scale = sum(y level) / sum(level^2)
//
// Sums are taken in double, in order, where products of a float and a level, and squares of floats, are
// exact: every machine stores the same bytes. Queries and outputs are rotated likewise: q . k is
// Rotate(q) . Rotate(k), and Rotate is its own inverse. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/ids.h"

namespace baton::kv {

inline constexpr int kMostI4Dim = 256;  // of a head; and it is a multiple of 8

// Below this magnitude a scaled vector counts as zeros.
inline constexpr float kTiny = 0x1p-100f;

inline constexpr std::array<int8_t, 16> kI4Levels = {-127, -96, -75, -58, -44, -31, -18, -6,
                                                     6,    18,  31,  44,  58,  75,  96,  127};
using I4Vector = std::array<uint8_t, kMostI4Dim>;  // a code per number

// Rotates `vector` [dim] in place: runs of the largest power of two that divides dim, butterflies of distance
// 1, 2, 4 and so on, then one product with 2^(-n / 2).
void Rotate(float* vector, int dim);

// The codes of `vector` [dim], which it rotates itself, and their scale: NaN if it has an infinity or a NaN.
float EncodeI4(const float* vector, int dim, I4Vector& codes);

// Where the code of a number lies, counted in half bytes: the byte, and its low or high half.
struct HalfByte {
  int64_t byte;
  bool high;
};
// Number d of the key of token `token` of a block, and of a value.
constexpr HalfByte I4KeyPlace(int d, int64_t token) {
  return {d / 8 * 4 * kBlockTokens + token * 4 + d % 4, d % 8 >= 4};
}
constexpr HalfByte I4ValuePlace(int d, int dim, int64_t token) {
  const int half = dim / 2;
  return {token / 4 * 4 * half + d % half * 4 + token % 4, d >= half};
}

inline void PutCode(std::byte* data, HalfByte place, uint8_t code) {
  std::byte& byte = data[place.byte];
  byte = place.high ? (byte & std::byte{0x0F}) | std::byte(code << 4)
                    : (byte & std::byte{0xF0}) | std::byte(code);
}
inline uint8_t CodeAt(const std::byte* data, HalfByte place) {
  const auto byte = std::to_integer<uint8_t>(data[place.byte]);
  return place.high ? byte >> 4 : byte & 0x0F;
}

}  // namespace baton::kv
