// ColumnTransform: another basis of the columns of a weight matrix, in which integers lose less of it.
// Trained models have activations of which a few columns dwarf all others, and one scale for a row then
// leaves the others with few bits. A power of two per column evens out what a column has in all rows (as
// SmoothQuant does, arXiv 2211.10438, with other factors), and a Walsh-Hadamard transform H spreads what is
// left over a block of columns (as QuaRot does, arXiv 2404.00456):
//
//   activations   y[k] = H(x[k] 2^-e[k])
//   weights       u[n][k] = H(w[n][k] 2^e[k]) / block,   w[n][k] = H(u[n][k]) 2^-e[k]
//
// H is not normalized, so H H = block, and products of y and u are those of x and w. All but the sums of H is
// exact. Plain data and pure functions, any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace baton::kernels {

struct ColumnTransform {
  // Larger blocks gain nothing.
  static constexpr int64_t kMostBlock = 64;

  int64_t block = 1;                  // a power of two that divides the columns; 1: H changes nothing
  const int8_t* exponents = nullptr;  // [cols] e; null: zeros

  bool none() const { return block == 1 && exponents == nullptr; }
};

// The block for rows of so many columns.
constexpr int64_t TransformBlock(int64_t cols) { return std::min(cols & -cols, ColumnTransform::kMostBlock); }

inline bool SameTransform(const ColumnTransform& a, const ColumnTransform& b, int64_t cols) {
  if (a.block != b.block || (a.exponents == nullptr) != (b.exponents == nullptr)) return false;
  return a.exponents == b.exponents || std::equal(a.exponents, a.exponents + cols, b.exponents);
}

// 2^exponent, which is in -126 .. 127.
constexpr float PowerOfTwo(int exponent) { return std::bit_cast<float>((127 + exponent) << 23); }

// H: for h = 1, 2 .. block / 2 each pair (i, i + h) of which i lacks bit h becomes its sum and its
// difference.
inline void Hadamard(std::span<float> row, int64_t block) {
  for (int64_t h = 1; h < block; h *= 2) {
    for (size_t first = 0; first < row.size(); first += static_cast<size_t>(2 * h)) {
      float* const low = row.data() + first;
      float* const high = low + h;
      for (int64_t i = 0; i < h; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

// w becomes block * u.
inline void TransformWeights(std::span<float> row, const ColumnTransform& transform) {
  if (transform.exponents != nullptr) {
    for (size_t k = 0; k < row.size(); ++k) row[k] *= PowerOfTwo(transform.exponents[k]);
  }
  Hadamard(row, transform.block);
}

// u becomes w.
inline void UndoTransform(std::span<float> row, const ColumnTransform& transform) {
  Hadamard(row, transform.block);
  if (transform.exponents != nullptr) {
    for (size_t k = 0; k < row.size(); ++k) row[k] *= PowerOfTwo(-transform.exponents[k]);
  }
}

}  // namespace baton::kernels
