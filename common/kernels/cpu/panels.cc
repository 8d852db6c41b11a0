#include "common/kernels/cpu/panels.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "common/base/check.h"
#include "fmt/format.h"

namespace baton::kernels::cpu {
namespace {

using tensor::DType;

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Value `i` of an array as it lies in a file, not always aligned.
template <typename T>
T At(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float FloatAt(const WeightView& part, int64_t i) {
  switch (part.dtype) {
    case DType::kF32:
      return At<float>(part.data, i);
    case DType::kBF16:
      return tensor::FromBF16(At<uint16_t>(part.data, i));
    case DType::kF8:
    case DType::kI8:
      break;  // of KV only
    case DType::kF16:
      return tensor::FromF16(At<uint16_t>(part.data, i));
  }
  BATON_CHECK(false) << "dtype";
  return 0;
}

// Index of a panel's row within a bfloat16 column, in 16-bit units, the low half of a word first.
static_assert(std::endian::native == std::endian::little);
constexpr int BF16Slot(int row) {
  const int group = row / 32, lane = row % 16;
  const bool high = row % 32 >= 16;
  return group * 32 + lane * 2 + (high ? 1 : 0);
}

}  // namespace

void Panels::Free::operator()(std::byte* memory) const { std::free(memory); }

absl::StatusOr<std::unique_ptr<Panels>> Panels::Pack(std::span<const WeightView> parts) {
  if (parts.empty()) return absl::InvalidArgumentError("no weights to pack");
  int64_t rows = 0;
  bool all_bf16 = true;
  for (const WeightView& part : parts) {
    if (part.rows < 1 || part.cols < 1 || part.cols != parts[0].cols) {
      return absl::InvalidArgumentError(fmt::format("weights of [{}, {}] can't be stacked on [{}, {}]",
                                                    part.rows, part.cols, parts[0].rows, parts[0].cols));
    }
    rows += part.rows;
    all_bf16 = all_bf16 && part.dtype == DType::kBF16;
  }
  auto packed =
      std::unique_ptr<Panels>(new Panels(rows, parts[0].cols, all_bf16 ? DType::kBF16 : DType::kF32));
  const auto bytes = static_cast<size_t>(packed->bytes());
  const size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(fmt::format("no memory for {} bytes of weights", rounded));
  }
  packed->memory_.reset(memory);
  // Fewer TLB misses while streaming; a refusal costs nothing but speed.
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);

  const int64_t cols = packed->cols();
  int64_t target = 0;  // row of the stacked matrix
  for (const WeightView& part : parts) {
    for (int64_t r = 0; r < part.rows; ++r, ++target) {
      std::byte* panel = memory + target / kPanelRows * packed->panel_bytes();
      const auto row = static_cast<int>(target % kPanelRows);
      if (all_bf16) {
        auto* column = reinterpret_cast<uint16_t*>(panel) + BF16Slot(row);
        for (int64_t c = 0; c < cols; ++c) column[c * kPanelRows] = At<uint16_t>(part.data, r * cols + c);
      } else {
        auto* column = reinterpret_cast<float*>(panel) + row;
        for (int64_t c = 0; c < cols; ++c) column[c * kPanelRows] = FloatAt(part, r * cols + c);
      }
    }
  }
  const int value_bytes = tensor::SizeOf(packed->dtype_);
  for (; target < packed->panels() * kPanelRows; ++target) {
    std::byte* panel = memory + target / kPanelRows * packed->panel_bytes();
    const auto row = static_cast<int>(target % kPanelRows);
    const int slot = all_bf16 ? BF16Slot(row) : row;
    for (int64_t c = 0; c < cols; ++c) {
      std::memset(panel + (c * kPanelRows + slot) * value_bytes, 0, static_cast<size_t>(value_bytes));
    }
  }
  return packed;
}

void Panels::Row(int64_t row, float* out) const {
  const std::byte* panel_start = panel(row / kPanelRows);
  const auto r = static_cast<int>(row % kPanelRows);
  if (dtype_ == DType::kBF16) {
    const auto* column = reinterpret_cast<const uint16_t*>(panel_start) + BF16Slot(r);
    for (int64_t c = 0; c < cols(); ++c) out[c] = tensor::FromBF16(column[c * kPanelRows]);
  } else {
    const auto* column = reinterpret_cast<const float*>(panel_start) + r;
    for (int64_t c = 0; c < cols(); ++c) out[c] = column[c * kPanelRows];
  }
}

}  // namespace baton::kernels::cpu
