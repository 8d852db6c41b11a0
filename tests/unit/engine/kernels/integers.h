// Matrices of int8 and of 4 bits, and the definition of their products (cpu-i8/1) in plain code.
#pragma once

#include <cmath>
#include <limits>

#include "tests/unit/engine/kernels/trial.h"

namespace baton::kernels {

inline const char* const kIsas[] = {"baseline", "avx2", "avx512", "avx512vnni", "amx"};

struct Integers {
  int64_t rows, cols;
  std::vector<int8_t> values;  // [rows][cols]
  std::vector<float> scales;   // [rows]

  Integers(int64_t rows, int64_t cols, Random& random) : rows(rows), cols(cols) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      // The ends of the range often: there, sums of two products leave 16 bits.
      const int64_t drawn = random.Int(-190, 190);
      values.push_back(static_cast<int8_t>(std::clamp<int64_t>(drawn, -127, 127)));
    }
    for (int64_t r = 0; r < rows; ++r) scales.push_back(1e-4f * static_cast<float>(random.Int(1, 1000)));
  }
  WeightView view() const {
    return {
        values.data(), tensor::DType::kI8, rows, cols, {.bits = 8, .group = cols, .scales = scales.data()}};
  }
  // Columns [first, first + count).
  Integers Columns(int64_t first, int64_t count) const {
    Integers part = *this;
    part.cols = count;
    part.values.clear();
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = values.begin() + r * cols + first;
      part.values.insert(part.values.end(), row, row + count);
    }
    return part;
  }
};

// Random values, factors and zeros within the lattice, and the same as int8.
struct Lattice {
  static constexpr int64_t kGroup = 16;
  Integers integers;
  std::vector<uint8_t> halves, factors, zeros;

  Lattice(int64_t rows, int64_t cols, Random& random) : integers(rows, cols, random) {
    const int64_t groups = (cols + kGroup - 1) / kGroup, row_bytes = (cols + 1) / 2;
    halves.resize(static_cast<size_t>(rows * row_bytes));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        // The ends of the range often, where products are largest.
        const auto factor = static_cast<int>(std::clamp<int64_t>(random.Int(-2, 20), 1, 16));
        const auto zero = static_cast<int>(std::clamp<int64_t>(random.Int(-3, 18), 0, 15));
        factors.push_back(static_cast<uint8_t>(factor));
        zeros.push_back(static_cast<uint8_t>(zero));
        const int most = 127 / factor;
        for (int64_t c = g * kGroup; c < std::min(cols, (g + 1) * kGroup); ++c) {
          const auto drawn = static_cast<int>(std::clamp<int64_t>(random.Int(-4, 19), 0, 15));
          const int value = std::clamp(drawn, std::max(0, zero - most), std::min(15, zero + most));
          halves[static_cast<size_t>(r * row_bytes + c / 2)] |= static_cast<uint8_t>(value << (c % 2 * 4));
          integers.values[static_cast<size_t>(r * cols + c)] = static_cast<int8_t>(factor * (value - zero));
        }
      }
    }
  }
  WeightView view() const {
    return {halves.data(),
            tensor::DType::kI8,
            integers.rows,
            integers.cols,
            {.bits = 4,
             .group = kGroup,
             .scales = integers.scales.data(),
             .zeros = zeros.data(),
             .factors = factors.data()}};
  }
};

// The definition (integer_product.h), a value at a time.
inline std::vector<float> Judge(const std::vector<float>& x, const Integers& w,
                                const std::vector<float>& bias) {
  std::vector<float> out;
  const auto rows = static_cast<int64_t>(x.size()) / w.cols;
  for (int64_t m = 0; m < rows; ++m) {
    float largest = 0;
    bool finite = true;
    for (int64_t k = 0; k < w.cols; ++k) {
      const float magnitude = std::abs(x[static_cast<size_t>(m * w.cols + k)]);
      finite = finite && std::isfinite(magnitude);
      largest = magnitude > largest ? magnitude : largest;
    }
    const bool zero = largest < std::ldexp(1.0f, -100);
    const float d = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 127.0f;
    const float by = 127.0f / largest;
    for (int64_t n = 0; n < w.rows; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < w.cols && finite && !zero; ++k) {
        const float scaled = x[static_cast<size_t>(m * w.cols + k)] * by;
        sum += static_cast<int64_t>(std::nearbyint(scaled)) * w.values[static_cast<size_t>(n * w.cols + k)];
      }
      const float scale = d * w.scales[static_cast<size_t>(n)];
      const float product = static_cast<float>(sum) * scale;
      out.push_back(bias.empty() ? product : product + bias[static_cast<size_t>(n)]);
    }
  }
  return out;
}

inline std::vector<float> Multiply(Kernels& kernels, const PackedMatrix& w, const std::vector<float>& x,
                                   const std::vector<float>& bias) {
  const auto rows = static_cast<int64_t>(x.size()) / w.cols();
  OwnedMatrix in = OwnedMatrix::From(x, rows, w.cols(), 5), out(rows, w.rows(), 3);
  kernels.MatMul(in.view(), w, bias, out.view());
  EXPECT_TRUE(out.GapsIntact());
  return out.values();
}

}  // namespace baton::kernels
