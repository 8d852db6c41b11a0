// Panels: a weight matrix [rows, cols] in the order in which the multiply reads it. 64 rows (output features)
// make a panel, and a panel is stored column by column (an input feature of all 64 rows, side by side), so
// that one pass through a panel reads memory in order, once:
//
//   panel := column[cols],   column := 64 values of 64 rows, zeros where the matrix has fewer
//
// float32 columns are plain: value i is row i. bfloat16 columns are two groups of 32 rows, a group being 16
// words of 32 bits: the low half of word i is row i of the group and the high half is row i + 16. A shift and
// a mask make two float32 vectors of consecutive rows out of one load, at any vector width.
//
// bfloat16 stays bfloat16, float32 stays float32, float16 becomes float32. Immutable once packed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/kernels/kernels.h"

namespace baton::kernels::cpu {

inline constexpr int kPanelRows = 64;

class Panels final : public PackedMatrix {
 public:
  // `parts` stacked along rows. bfloat16 only if all of them are, else float32. INVALID_ARGUMENT names the
  // part whose shape doesn't fit; RESOURCE_EXHAUSTED if the memory can't be had.
  static absl::StatusOr<std::unique_ptr<Panels>> Pack(std::span<const WeightView> parts);

  tensor::DType dtype() const { return dtype_; }  // kF32 or kBF16
  int64_t panels() const { return (rows() + kPanelRows - 1) / kPanelRows; }
  int64_t panel_bytes() const { return cols() * kPanelRows * tensor::SizeOf(dtype_); }
  const std::byte* panel(int64_t i) const { return memory_.get() + i * panel_bytes(); }
  int64_t bytes() const override { return panels() * panel_bytes(); }

  // Copies row `row` to out [cols], as float32.
  void Row(int64_t row, float* out) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  Panels(int64_t rows, int64_t cols, tensor::DType dtype) : PackedMatrix(rows, cols), dtype_(dtype) {}

  tensor::DType dtype_;
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace baton::kernels::cpu
