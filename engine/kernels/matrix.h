// Matrix: a view of activations, row-major [rows, cols], in a backend's memory. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/tensor/dtype.h"

namespace baton::kernels {

// `stride` is between rows, in values. The memory belongs to an Arena.
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  tensor::DType dtype = tensor::DType::kF32;

  // For float32 in host memory.
  float* row(int64_t r) const { return static_cast<float*>(data) + r * stride; }
  std::byte* bytes(int64_t r) const {
    return static_cast<std::byte*>(data) + r * stride * tensor::SizeOf(dtype);
  }
  // Rows [first, first + count).
  Matrix Rows(int64_t first, int64_t count) const { return {bytes(first), count, cols, stride, dtype}; }
  // Columns [first, first + count).
  Matrix Columns(int64_t first, int64_t count) const {
    return {bytes(0) + first * tensor::SizeOf(dtype), rows, count, stride, dtype};
  }
};

}  // namespace baton::kernels
