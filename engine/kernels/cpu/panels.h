// Panels: a packed weight matrix [rows, cols] of the cpu backend: panels of 64 rows, one after the other,
// each as the matrix's WeightFormat lays it out, zeros where the matrix has fewer rows. It knows its own
// product. Immutable once packed, but for the place of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "engine/device/thread_pool.h"
#include "engine/kernels/cpu/elementwise.h"
#include "engine/kernels/cpu/format.h"
#include "engine/kernels/cpu/panel_memory.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels::cpu {

class Panels final : public PackedMatrix {
 public:
  // `parts` stacked along rows, in the format that FormatFor gives them, for products by `isa`. A panel is
  // packed by one thread of the pool, which touches its memory first.
  // INVALID_ARGUMENT names the part whose shape doesn't fit; RESOURCE_EXHAUSTED if the memory can't be had.
  static absl::StatusOr<std::unique_ptr<Panels>> Pack(std::span<const WeightView> parts, Isa isa,
                                                      PanelMemory& memory, device::ThreadPool& pool);

  // The class of its products' rounding.
  std::string_view numerics() const;
  // Null: its products are of floats. Otherwise the steps of a product of integers, of rows that Prepare
  // made.
  const IntegerKernel* integers() const { return integers_; }
  // Bytes of a row of x as its products want it; 0: as it is, in floats.
  int64_t row_bytes() const { return row_bytes_; }
  // Makes a row of x [cols()] what its products want, [row_bytes()]. The scale of a row of integers is set by
  // `largest`, or, if that is null, by LargestOf(x).
  void Prepare(const float* x, const int32_t* largest, std::byte* row) const;
  // IntegerKernel::largest of a row of x in the basis of the columns.
  int32_t LargestOf(const float* x) const;
  int64_t panels() const { return (rows() + kPanelRows - 1) / kPanelRows; }
  int64_t bytes() const override { return panels() * panel_bytes_; }
  bool exact_sums() const override { return integers_ != nullptr; }
  std::span<const std::byte> image() const override {
    if (data_ == nullptr) return {};
    return {data_, static_cast<size_t>(bytes())};
  }
  void Place(std::span<const std::byte> image) override;
  std::unique_ptr<PackedMatrix> Unplaced(int64_t rows) const override {
    std::unique_ptr<Panels> unplaced(new Panels(rows, cols(), format_, isa_));
    unplaced->block_ = block_;
    unplaced->scales_ = scales_;
    return unplaced;
  }

  // How many panels the product of one row takes at a time, the last time perhaps fewer.
  int abreast() const { return abreast_; }
  // How many the product of kManyRows rows or more takes.
  int together() const { return together_; }
  // The product of the rows of x and panel `panel`, into its 64 (or fewer) columns of `out`, which has the
  // same rows. bias [rows()], or empty; `prepared`: the rows of x, if they have row_bytes(). Any thread;
  // panels are independent of each other. `count` > 1, of as many panels: for one row of x
  // up to abreast(), for kManyRows or more up to together().
  PanelProduct Product(Matrix x, int64_t panel, std::span<const float> bias, Matrix out,
                       PreparedRows prepared, int count = 1) const;
  void Multiply(const PanelProduct& job) const { product_(job); }
  // Copies row `row` to out [cols], as float32.
  void ReadRow(int64_t row, float* out) const;

 private:
  Panels(int64_t rows, int64_t cols, const WeightFormat& format, Isa isa)
      : PackedMatrix(rows, cols),
        format_(format),
        isa_(isa),
        product_(format.ProductFor(isa)),
        rows_(format.RowsFor(isa)),
        integers_(format.IntegersFor(isa)),
        row_bytes_(rows_ != nullptr       ? rows_->bytes(cols)
                   : integers_ != nullptr ? integers_->row_bytes(cols)
                                          : 0),
        abreast_(format.Abreast(isa)),
        together_(format.Together(isa)),
        elementwise_(ElementwiseFor(isa)),
        panel_bytes_(format.PanelBytes(cols)) {}
  void Transform(const ColumnTransform& transform);
  // A row of x in the basis of the columns, where the thread keeps it until the next one.
  const float* InBasis(const float* x) const;
  const std::byte* panel(int64_t i) const {
    BATON_DCHECK(data_ != nullptr);
    return data_ + i * panel_bytes_;
  }

  const WeightFormat& format_;
  const Isa isa_;
  const WeightFormat::Product product_;
  const RowKernel* const rows_;          // null: the product reads floats or integers
  const IntegerKernel* const integers_;  // null: the product is of floats
  const int64_t row_bytes_;
  const int abreast_, together_;
  const ElementwiseTable& elementwise_;
  const int64_t panel_bytes_;
  int64_t block_ = 1;                  // ColumnTransform::block
  std::vector<float> scales_;          // [cols] 2^-exponent of each column; empty: ones
  const std::byte* data_ = nullptr;    // null: nowhere
  std::shared_ptr<std::byte> memory_;  // null: they are not this matrix's own
};

}  // namespace baton::kernels::cpu
