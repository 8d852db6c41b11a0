// A row of 4-bit weights on the lattice of int8: groups of 16 columns with an integer factor in 1 .. 16 and
// an integer zero in 0 .. 15, and one scale for the row. The number of value q, 0 .. 15, is
// scale * (factor * (q - zero)), and factor * (q - zero) is in [-127, 127]: an int8 weight
// (kernels::Quantization). Pure functions, any thread; equal rows give equal results on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace baton::model {

inline constexpr int64_t kLatticeGroup = 16;

constexpr int64_t LatticeGroups(int64_t cols) { return (cols + kLatticeGroup - 1) / kLatticeGroup; }

struct LatticeRow {
  std::span<uint8_t> factors, zeros;  // [groups]
  std::span<uint8_t> values;          // [cols]
};

// Rounds a row of finite numbers, and returns its scale. For each group it takes the factor and zero with the
// smallest sum of squared errors, among those about its range; the row's scale holds all of its numbers
// (smaller ones, which cut off the largest, gain nothing). It has 16 significant bits, so that scale * factor
// is a float without rounding, and factors have no common divisor: the row's scale and factors follow from
// the scales of its groups (LatticeOf). A row of magnitudes below 2^-100 becomes zeros.
float RoundToLattice(std::span<const float> row, const LatticeRow& out);

// The same a group at a time, for rows whose later groups depend on what the earlier ones lost: the scale of
// a row (0: it becomes zeros); of up to 16 numbers in units of it, the factor and the zero, and the value of
// one. Values are those of RoundToLattice where the factors have no common divisor.
struct LatticeGroup {
  int factor = 1, zero = 0;
};
float LatticeScale(std::span<const float> row);
LatticeGroup BestLatticeGroup(std::span<const float> numbers);
uint8_t LatticeValue(float number, const LatticeGroup& group);

// The scale and the factors of a row whose groups have these scales, if each is a product of one number and
// an integer in 1 .. 16, exactly. All scales may be 0.
std::optional<float> LatticeOf(std::span<const float> scales, std::span<uint8_t> factors);

}  // namespace baton::model
