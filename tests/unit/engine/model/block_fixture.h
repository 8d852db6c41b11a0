// Small matrices of random numbers, on the reference backend, for the tests of a decoder's blocks.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "engine/kernels/kernels.h"

namespace baton::model {

// Numbers in [-1, 1), row-major, and what a backend makes of them.
struct Numbers {
  std::vector<float> values;
  int64_t rows = 0;
  int64_t cols = 0;

  float at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
  kernels::Matrix view() { return {values.data(), rows, cols, cols}; }
  std::unique_ptr<kernels::PackedMatrix> Pack(kernels::Kernels& kernels) const {
    const kernels::WeightView view{values.data(), tensor::DType::kF32, rows, cols};
    return *kernels.Pack({&view, 1});
  }
  kernels::Values Place(kernels::Kernels& kernels) const {
    return *kernels::Values::Place(values, kernels.memory());
  }
};

class NumberSource {
 public:
  Numbers Make(int64_t rows, int64_t cols) {
    Numbers numbers{
        .values = std::vector<float>(static_cast<size_t>(rows * cols)), .rows = rows, .cols = cols};
    for (float& value : numbers.values) value = std::uniform_real_distribution<float>(-1, 1)(random_);
    return numbers;
  }

 private:
  std::mt19937 random_{17};
};

// out[r] = x[r] w^T + bias
inline Numbers Multiply(const Numbers& x, const Numbers& w, const Numbers& bias) {
  Numbers out{.values = {}, .rows = x.rows, .cols = w.rows};
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t o = 0; o < w.rows; ++o) {
      double sum = bias.values.empty() ? 0 : bias.values[static_cast<size_t>(o)];
      for (int64_t i = 0; i < w.cols; ++i) sum += double{x.at(r, i)} * w.at(o, i);
      out.values.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

}  // namespace baton::model
