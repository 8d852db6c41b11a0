// WeightView: a weight matrix as it lies in a model's file. Plain data, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/tensor/dtype.h"

namespace baton::kernels {

// What the values of a quantized matrix stand for. The value q of row r and column c is the number
//   scales[r][c / group] * (q - zeros[r][c / group])
// where a row has ceil(cols / group) groups.
struct Quantization {
  int bits = 0;                    // of a value: 8 or 4; 0: the matrix is not quantized
  int64_t group = 0;               // columns that share a scale
  const float* scales = nullptr;   // [rows][groups]
  const uint8_t* zeros = nullptr;  // [rows][groups], and values are unsigned; null: they are signed, around 0
};

// Row-major [rows, cols]. Numbers of `dtype`, aligned for it; or, if quantized, integers of `bits` bits: of
// two in one byte, the lower half is the first, and a row begins with a byte of its own.
struct WeightView {
  const void* data = nullptr;
  tensor::DType dtype = tensor::DType::kF32;  // kI8 if quantized
  int64_t rows = 1;
  int64_t cols = 0;
  Quantization quantization = {};

  bool quantized() const { return quantization.bits != 0; }
};

// The number at a row and a column.
inline float ValueAt(const WeightView& view, int64_t row, int64_t col) {
  if (!view.quantized()) return tensor::ValueAt(view.data, view.dtype, row * view.cols + col);
  const Quantization& q = view.quantization;
  const int per_byte = 8 / q.bits;
  const int64_t row_bytes = (view.cols + per_byte - 1) / per_byte;
  const auto byte =
      std::to_integer<int>(static_cast<const std::byte*>(view.data)[row * row_bytes + col / per_byte]);
  const int range = 1 << q.bits;
  int value = (byte >> (col % per_byte * q.bits)) & (range - 1);
  const int64_t at = row * ((view.cols + q.group - 1) / q.group) + col / q.group;
  if (q.zeros != nullptr) {
    value -= q.zeros[at];
  } else if (value >= range / 2) {
    value -= range;
  }
  return q.scales[at] * static_cast<float>(value);
}

}  // namespace baton::kernels
