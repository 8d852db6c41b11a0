// WeightView: a weight matrix as it lies in a model's file. Plain data, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/tensor/dtype.h"
#include "engine/kernels/column_transform.h"

namespace baton::kernels {

// How a quantized matrix stands for numbers. The value q of row r and column c is the number
//   scales[r][c / group] * (q - zeros[r][c / group])
// where a row has ceil(cols / group) groups. Or, with `factors`, an integer in [-127, 127] times one scale of
// the whole row:
//   scales[r] * (factors[r][c / group] * (q - zeros[r][c / group]))
// These are the numbers of the matrix, or, with a transform of its columns, those that it makes of them (u).
struct Quantization {
  int bits = 0;                    // of a value: 8 or 4; 0: the matrix is not quantized
  int64_t group = 0;               // columns that share a scale, or a factor
  const float* scales = nullptr;   // [rows][groups]; with factors [rows]
  const uint8_t* zeros = nullptr;  // [rows][groups], and values are unsigned; null: they are signed, around 0
  const uint8_t* factors = nullptr;  // [rows][groups] of 1 to 16, or null
  ColumnTransform transform = {};

  // Integers times one scale per row: 4 bits with factors.
  bool lattice() const { return bits == 4 && factors != nullptr; }
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

// The group of a row and a column.
inline int64_t GroupAt(const WeightView& view, int64_t row, int64_t col) {
  const int64_t group = view.quantization.group;
  return row * ((view.cols + group - 1) / group) + col / group;
}

// The value q at a row and a column of a quantized matrix, less its zero.
inline int QuantizedAt(const WeightView& view, int64_t row, int64_t col) {
  const Quantization& q = view.quantization;
  const int per_byte = 8 / q.bits;
  const int64_t row_bytes = (view.cols + per_byte - 1) / per_byte;
  const auto byte =
      std::to_integer<int>(static_cast<const std::byte*>(view.data)[row * row_bytes + col / per_byte]);
  const int range = 1 << q.bits;
  const int value = (byte >> (col % per_byte * q.bits)) & (range - 1);
  if (q.zeros != nullptr) return value - q.zeros[GroupAt(view, row, col)];
  return value >= range / 2 ? value - range : value;
}

// That times its factor: what the scale of its row multiplies.
inline int IntegerAt(const WeightView& view, int64_t row, int64_t col) {
  return QuantizedAt(view, row, col) * view.quantization.factors[GroupAt(view, row, col)];
}

// The number at a row and a column; of a matrix whose columns are transformed, what they became.
inline float ValueAt(const WeightView& view, int64_t row, int64_t col) {
  if (!view.quantized()) return tensor::ValueAt(view.data, view.dtype, row * view.cols + col);
  const Quantization& q = view.quantization;
  if (q.factors != nullptr) return q.scales[row] * static_cast<float>(IntegerAt(view, row, col));
  return q.scales[GroupAt(view, row, col)] * static_cast<float>(QuantizedAt(view, row, col));
}

// The numbers of a row [cols], whatever they are kept as.
inline void ReadRow(const WeightView& view, int64_t row, std::span<float> out) {
  const auto read = [&](const auto& value_at) {
    for (size_t c = 0; c < out.size(); ++c) out[c] = value_at(static_cast<int64_t>(c));
  };
  const int64_t first = row * view.cols;
  if (view.quantized()) {
    read([&](int64_t c) { return ValueAt(view, row, c); });
    UndoTransform(out, view.quantization.transform);
  } else if (view.dtype == tensor::DType::kF32) {
    read([&](int64_t c) { return tensor::ValueAt(view.data, tensor::DType::kF32, first + c); });
  } else if (view.dtype == tensor::DType::kBF16) {
    read([&](int64_t c) { return tensor::ValueAt(view.data, tensor::DType::kBF16, first + c); });
  } else {
    read([&](int64_t c) { return tensor::ValueAt(view.data, view.dtype, first + c); });
  }
}

}  // namespace baton::kernels
