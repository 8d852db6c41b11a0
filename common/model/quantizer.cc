#include "common/model/quantizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "common/tensor/dtype.h"

namespace baton::model {
namespace {

using kernels::WeightView;
using tensor::DType;

// Rows that a task converts.
constexpr int64_t kRowsPerTask = 16;
// Below this, 127 / max|w| could overflow.
constexpr float kTiny = 0x1p-100f;
// Columns of a whole row: sums of products with int8 activations stay within 32 bits.
constexpr int64_t kMostColumns = std::numeric_limits<int32_t>::max() / (127 * 255);

// Row `r` of a matrix as floats.
void ReadRow(const WeightView& matrix, int64_t r, std::span<float> out) {
  const auto read = [&]<DType dtype>() {
    const auto* row = static_cast<const std::byte*>(matrix.data) + r * matrix.cols * tensor::SizeOf(dtype);
    for (size_t c = 0; c < out.size(); ++c) out[c] = tensor::ValueAt(row, dtype, static_cast<int64_t>(c));
  };
  switch (matrix.dtype) {
    case DType::kF32:
      return read.operator()<DType::kF32>();
    case DType::kBF16:
      return read.operator()<DType::kBF16>();
    default:
      for (size_t c = 0; c < out.size(); ++c) {
        out[c] = tensor::ValueAt(matrix.data, matrix.dtype, r * matrix.cols + static_cast<int64_t>(c));
      }
  }
}

// The largest magnitude. Bits of magnitudes are in the magnitudes' order; infinity and NaN come last.
float LargestOf(std::span<const float> row) {
  int32_t largest = 0;
  for (float value : row) largest = std::max(largest, std::bit_cast<int32_t>(value) & 0x7FFFFFFF);
  return std::bit_cast<float>(largest);
}

// The nearest integer, ties to even, of a number below 2^22: what is left of it beside 1.5 * 2^23.
int8_t Nearest(float value) {
  constexpr float kLarge = 12582912.0f;
  return static_cast<int8_t>(std::bit_cast<int32_t>(value + kLarge) - std::bit_cast<int32_t>(kLarge));
}

}  // namespace

std::string_view Name(WeightPrecision precision) {
  for (const auto& [name, value] : WeightPrecisions()) {
    if (value == precision) return name;
  }
  return "unknown";
}

const std::vector<std::pair<std::string, WeightPrecision>>& WeightPrecisions() {
  static const std::vector<std::pair<std::string, WeightPrecision>> all = {
      {"stored", WeightPrecision::kStored},
      {"bf16", WeightPrecision::kBF16},
      {"int8", WeightPrecision::kInt8}};
  return all;
}

bool Quantizer::Changes(DType dtype) const {
  return precision_ == WeightPrecision::kInt8 ||
         (precision_ == WeightPrecision::kBF16 && dtype != DType::kBF16);
}

absl::StatusOr<ConvertedMatrix> Quantizer::Convert(const WeightView& matrix, Range own) {
  const bool int8 = precision_ == WeightPrecision::kInt8;
  if (int8 && matrix.cols > kMostColumns) {
    return absl::InvalidArgumentError(
        fmt::format("int8 weights have rows of at most {} values, not {}", kMostColumns, matrix.cols));
  }
  ConvertedMatrix out;
  const int64_t size = int8 ? 1 : 2;
  out.values.resize(static_cast<size_t>(matrix.rows * own.count * size));
  if (int8) out.scales.resize(static_cast<size_t>(matrix.rows));
  std::atomic<int64_t> bad = matrix.rows;  // the first row that can't be converted
  pool_.ParallelFor((matrix.rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task) {
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    for (int64_t r = task * kRowsPerTask; r < std::min(matrix.rows, (task + 1) * kRowsPerTask); ++r) {
      ReadRow(matrix, r, row);
      const std::span<const float> kept(row.data() + own.begin, static_cast<size_t>(own.count));
      std::byte* to = out.values.data() + r * own.count * size;
      if (!int8) {
        for (size_t c = 0; c < kept.size(); ++c) {
          const uint16_t half = tensor::ToBF16(kept[c]);
          std::memcpy(to + 2 * c, &half, 2);
        }
        continue;
      }
      const float largest = LargestOf(row);
      if (!std::isfinite(largest)) {
        int64_t first = bad;
        while (r < first && !bad.compare_exchange_weak(first, r)) {
        }
        continue;
      }
      const bool zero = largest < kTiny;
      out.scales[static_cast<size_t>(r)] = zero ? 0.0f : largest / 127.0f;
      const float by = zero ? 0.0f : 127.0f / largest;
      auto* integers = reinterpret_cast<int8_t*>(to);
      for (size_t c = 0; c < kept.size(); ++c) integers[c] = Nearest(kept[c] * by);
    }
  });
  if (bad < matrix.rows) {
    return absl::InvalidArgumentError(
        fmt::format("row {} holds a value that is not a finite number", bad.load()));
  }
  out.view = {.data = out.values.data(),
              .dtype = int8 ? DType::kI8 : DType::kBF16,
              .rows = matrix.rows,
              .cols = own.count};
  if (int8) out.view.quantization = {.bits = 8, .group = own.count, .scales = out.scales.data()};
  return out;
}

}  // namespace baton::model
