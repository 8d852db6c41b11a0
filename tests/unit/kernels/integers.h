// Matrices of int8, and the definition of their products (cpu-i8/1) in plain code.
#pragma once

#include <cmath>
#include <limits>

#include "tests/unit/kernels/trial.h"

namespace baton::kernels {

inline const char* const kIsas[] = {"baseline", "avx2", "avx512", "avx512vnni"};

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
