#include "engine/model/quantizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/tensor/dtype.h"
#include "engine/model/lattice.h"

namespace baton::model {
namespace {

using kernels::WeightView;
using tensor::DType;

// Rows that a task converts.
constexpr int64_t kRowsPerTask = ErrorFeedback::kRows;
// Below this, 127 / max|w| could overflow.
constexpr float kTiny = 0x1p-100f;
// Columns of a whole row: sums of products with int8 activations stay within 32 bits.
constexpr int64_t kMostColumns = std::numeric_limits<int32_t>::max() / (127 * 255);

// Matrices that int4 leaves in int8, by the last parts of the names: data of DECISIONS N15.
constexpr std::string_view kInt8InInt4[] = {"lm_head.weight", "embed_tokens.weight", "q_proj.weight",
                                            "k_proj.weight", "v_proj.weight"};

// IsRouter, by the last parts of the names.
constexpr std::string_view kRouters[] = {"mlp.gate.weight", "mlp.router.weight",
                                         "block_sparse_moe.gate.weight", "mlp.shared_expert_gate.weight"};

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
      {"f32", WeightPrecision::kF32},
      {"bf16", WeightPrecision::kBF16},
      {"int8", WeightPrecision::kInt8},
      {"int4", WeightPrecision::kInt4}};
  return all;
}

bool IsRouter(std::string_view tensor) {
  return std::ranges::any_of(kRouters,
                             [tensor](std::string_view ending) { return tensor.ends_with(ending); });
}

WeightPrecision PrecisionFor(WeightPrecision precision, std::string_view tensor) {
  if (IsRouter(tensor)) return WeightPrecision::kStored;
  if (precision != WeightPrecision::kInt4) return precision;
  const bool sensitive = std::ranges::any_of(
      kInt8InInt4, [tensor](std::string_view ending) { return tensor.ends_with(ending); });
  return sensitive ? WeightPrecision::kInt8 : precision;
}

absl::Status CheckBlocks(WeightPrecision precision, int64_t cols, Range own, int64_t block) {
  if (own.begin % block == 0 && own.count % block == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "a rank would have {} of its {} columns, and {} weights transform blocks of {}, which can't be "
      "cut: use fewer ranks, or --weights bf16",
      own.count, cols, Name(precision), block));
}

bool Quantizer::Changes(DType dtype, std::string_view name) const {
  switch (PrecisionFor(precision_, name)) {
    case WeightPrecision::kStored:
      return false;
    case WeightPrecision::kF32:
      return dtype != DType::kF32;
    case WeightPrecision::kBF16:
      return dtype != DType::kBF16;
    case WeightPrecision::kInt8:
    case WeightPrecision::kInt4:
      return true;
  }
  return false;
}

Quantizer::Rounded::Rounded(int64_t cols)
    : factors(static_cast<size_t>(LatticeGroups(cols))),
      zeros(factors.size()),
      values(static_cast<size_t>(cols)) {}

void Quantizer::Keep(const Rounded& rounded, float scale, int64_t r, Range own, ConvertedMatrix& out) {
  const auto& [factors, zeros, values] = rounded;
  out.scales[static_cast<size_t>(r)] = scale;
  if (out.factors.empty()) {
    auto* integers = reinterpret_cast<int8_t*>(out.values.data()) + r * own.count;
    for (int64_t c = 0; c < own.count; ++c) {
      const auto col = static_cast<size_t>(own.begin + c), group = col / kLatticeGroup;
      integers[c] = static_cast<int8_t>(factors[group] * (values[col] - zeros[group]));
    }
    return;
  }
  const int64_t kept = LatticeGroups(own.count), first = own.begin / kLatticeGroup;
  std::copy_n(factors.begin() + first, kept, out.factors.begin() + r * kept);
  std::copy_n(zeros.begin() + first, kept, out.zeros.begin() + r * kept);
  std::byte* halves = out.values.data() + r * ((own.count + 1) / 2);
  for (int64_t c = 0; c < own.count; ++c) {
    halves[c / 2] |= std::byte(values[static_cast<size_t>(own.begin + c)] << (c % 2 * 4));
  }
}

absl::StatusOr<ConvertedMatrix> Quantizer::Convert(std::string_view name, const WeightView& matrix, Range own,
                                                   int64_t block) {
  const WeightPrecision precision = PrecisionFor(precision_, name);
  const bool integers = MakesIntegers(precision), wide = precision == WeightPrecision::kF32;
  if (integers && matrix.cols > kMostColumns) {
    return absl::InvalidArgumentError(fmt::format("{} weights have rows of at most {} values, not {}",
                                                  Name(precision), kMostColumns, matrix.cols));
  }
  kernels::ColumnTransform transform;
  if (integers && transforms_ && block > 0) {
    BATON_CHECK(kernels::TransformBlock(block) == block && matrix.cols % block == 0)
        << " blocks of " << block << " in " << matrix.cols << " columns";
    transform = {.block = block, .exponents = exponents_.Of(name)};
  }
  BATON_RETURN_IF_ERROR(CheckBlocks(precision_, matrix.cols, own, transform.block));
  const auto divisor = static_cast<float>(transform.block);
  const bool halves = precision == WeightPrecision::kInt4 && own.begin % kLatticeGroup == 0;
  ConvertedMatrix out;
  const int64_t row_bytes = halves     ? (own.count + 1) / 2
                            : integers ? own.count
                            : wide     ? 4 * own.count
                                       : 2 * own.count;
  out.values.resize(static_cast<size_t>(matrix.rows * row_bytes));
  if (integers) out.scales.resize(static_cast<size_t>(matrix.rows));
  if (halves) {
    out.factors.resize(static_cast<size_t>(matrix.rows * LatticeGroups(own.count)));
    out.zeros.resize(out.factors.size());
  }
  const ErrorFeedback* const feedback =
      precision == WeightPrecision::kInt4 && feedback_of_ ? feedback_of_(name) : nullptr;
  BATON_CHECK(feedback == nullptr || own.count == matrix.cols) << name;
  std::atomic<int64_t> bad = matrix.rows;  // the first row that can't be converted
  pool_.ParallelFor((matrix.rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task) {
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    const int64_t first = task * kRowsPerTask, end = std::min(matrix.rows, first + kRowsPerTask);
    std::vector<float> together;  // with feedback
    if (feedback != nullptr) together.resize(static_cast<size_t>((end - first) * matrix.cols));
    for (int64_t r = first; r < end; ++r) {
      kernels::ReadRow(matrix, r, row);
      const std::span<const float> kept(row.data() + own.begin, static_cast<size_t>(own.count));
      std::byte* to = out.values.data() + r * row_bytes;
      if (wide) {
        std::memcpy(to, kept.data(), kept.size_bytes());
        continue;
      }
      if (!integers) {
        for (size_t c = 0; c < kept.size(); ++c) {
          const uint16_t half = tensor::ToBF16(kept[c]);
          std::memcpy(to + 2 * c, &half, 2);
        }
        continue;
      }
      kernels::TransformWeights(row, transform);
      const float largest = LargestOf(row);
      if (!std::isfinite(largest)) {
        int64_t seen = bad;
        while (r < seen && !bad.compare_exchange_weak(seen, r)) {
        }
        continue;
      }
      if (precision == WeightPrecision::kInt4) {
        if (feedback != nullptr) {
          std::ranges::copy(row, together.begin() + (r - first) * matrix.cols);
          continue;
        }
        Rounded rounded(matrix.cols);
        Keep(rounded, RoundToLattice(row, rounded.row()) / divisor, r, own, out);
        continue;
      }
      const bool zero = largest < kTiny;
      out.scales[static_cast<size_t>(r)] = zero ? 0.0f : largest / 127.0f / divisor;
      const float by = zero ? 0.0f : 127.0f / largest;
      auto* bytes = reinterpret_cast<int8_t*>(to);
      for (size_t c = 0; c < kept.size(); ++c) bytes[c] = Nearest(kept[c] * by);
    }
    if (feedback == nullptr) return;
    std::vector<Rounded> rounded(static_cast<size_t>(end - first), Rounded(matrix.cols));
    std::vector<LatticeRow> rows;
    for (Rounded& one : rounded) rows.push_back(one.row());
    std::vector<float> scales(rows.size());
    feedback->Round(together, rows, scales);
    for (size_t i = 0; i < rows.size(); ++i) {
      Keep(rounded[i], scales[i] / divisor, first + static_cast<int64_t>(i), own, out);
    }
  });
  if (bad < matrix.rows) {
    return absl::InvalidArgumentError(
        fmt::format("row {} holds a value that is not a finite number", bad.load()));
  }
  if (transform.exponents != nullptr) transform.exponents += own.begin;
  done_ = std::min(all_, done_ + matrix.rows * matrix.cols);  // a matrix may be made a second time
  if (progress_) progress_(done_, all_);
  out.view = {.data = out.values.data(),
              .dtype = integers ? DType::kI8
                       : wide   ? DType::kF32
                                : DType::kBF16,
              .rows = matrix.rows,
              .cols = own.count};
  if (halves) {
    out.view.quantization = {.bits = 4,
                             .group = kLatticeGroup,
                             .scales = out.scales.data(),
                             .zeros = out.zeros.data(),
                             .factors = out.factors.data(),
                             .transform = transform};
  } else if (integers) {
    out.view.quantization = {
        .bits = 8, .group = own.count, .scales = out.scales.data(), .transform = transform};
  }
  return out;
}

}  // namespace baton::model
