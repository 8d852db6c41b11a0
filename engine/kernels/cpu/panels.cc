#include "engine/kernels/cpu/panels.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace baton::kernels::cpu {
namespace {

constexpr size_t kCacheLine = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<Panels>> Panels::Pack(std::span<const WeightView> parts, Isa isa,
                                                     PanelMemory& memory, device::ThreadPool& pool) {
  if (parts.empty()) return absl::InvalidArgumentError("no weights to pack");
  int64_t rows = 0;
  for (const WeightView& part : parts) {
    if (part.rows < 1 || part.cols < 1 || part.cols != parts[0].cols) {
      return absl::InvalidArgumentError(fmt::format("weights of [{}, {}] can't be stacked on [{}, {}]",
                                                    part.rows, part.cols, parts[0].rows, parts[0].cols));
    }
    rows += part.rows;
  }
  const WeightFormat& format = FormatFor(parts);
  auto packed = std::unique_ptr<Panels>(new Panels(rows, parts[0].cols, format, isa));
  if (packed->integers_ != nullptr) packed->Transform(parts[0].quantization.transform);
  packed->memory_ = memory.Take(static_cast<size_t>(packed->bytes()));
  if (packed->memory_ == nullptr) {
    return absl::ResourceExhaustedError(fmt::format("no memory for {} bytes of weights", packed->bytes()));
  }
  std::byte* const own = packed->memory_.get();
  packed->data_ = own;

  std::vector<int64_t> first_rows;  // of each part in the stacked matrix
  for (int64_t next = 0; const WeightView& part : parts) {
    first_rows.push_back(next);
    next += part.rows;
  }
  pool.ParallelFor(packed->panels(), [&](int64_t i) {
    std::byte* panel = own + i * packed->panel_bytes_;
    std::memset(panel, 0, static_cast<size_t>(packed->panel_bytes_));
    for (int64_t row = i * kPanelRows; row < std::min(rows, (i + 1) * kPanelRows); ++row) {
      const auto part =
          static_cast<size_t>(std::ranges::upper_bound(first_rows, row) - first_rows.begin() - 1);
      format.PackRow(parts[part], row - first_rows[part], panel, static_cast<int>(row % kPanelRows));
    }
  });
  return packed;
}

void Panels::Place(std::span<const std::byte> image) {
  BATON_CHECK(image.empty() ||
              (std::ssize(image) == bytes() && reinterpret_cast<uintptr_t>(image.data()) % kCacheLine == 0));
  data_ = image.empty() ? nullptr : image.data();
  memory_.reset();
}

PanelProduct Panels::Product(Matrix x, int64_t panel, std::span<const float> bias, Matrix out,
                             PreparedRows prepared, int count) const {
  const int64_t first = panel * kPanelRows;
  return {.x = x.row(0),
          .x_stride = x.stride,
          .rows = x.rows,
          .depth = cols(),
          .panel = this->panel(panel),
          .bias = bias.empty() ? nullptr : bias.data() + first,
          .out = out.row(0) + first,
          .out_stride = out.stride,
          .width = static_cast<int>(std::min<int64_t>(count * kPanelRows, rows() - first)),
          .prepared = prepared,
          .panels = count,
          .panel_bytes = panel_bytes_};
}

void Panels::Transform(const ColumnTransform& transform) {
  BATON_CHECK(std::has_single_bit(static_cast<uint64_t>(transform.block)) &&
              transform.block <= ColumnTransform::kMostBlock && cols() % transform.block == 0)
      << " blocks of " << transform.block << " in " << cols() << " columns";
  block_ = transform.block;
  if (transform.exponents == nullptr) return;
  scales_.resize(static_cast<size_t>(cols()));
  for (size_t k = 0; k < scales_.size(); ++k) scales_[k] = PowerOfTwo(-transform.exponents[k]);
}

std::string_view Panels::numerics() const {
  return block_ == 1 && scales_.empty() ? format_.numerics(isa_) : kTransformedNumerics;
}

const float* Panels::InBasis(const float* x) const {
  if (block_ == 1 && scales_.empty()) return x;
  thread_local std::vector<float> row;
  row.resize(std::max(row.size(), static_cast<size_t>(cols())));
  elementwise_.hadamard(x, scales_.empty() ? nullptr : scales_.data(), block_, cols(), row.data());
  return row.data();
}

void Panels::Prepare(const float* x, const int32_t* largest, std::byte* row) const {
  if (rows_ != nullptr) return rows_->write(x, cols(), row);
  const float* const in_basis = InBasis(x);
  integers_->quantize(in_basis, cols(), largest != nullptr ? *largest : integers_->largest(in_basis, cols()),
                      row);
}

int32_t Panels::LargestOf(const float* x) const { return integers_->largest(InBasis(x), cols()); }

void Panels::ReadRow(int64_t row, float* out) const {
  const std::span<float> numbers(out, static_cast<size_t>(cols()));
  format_.ReadRow(panel(row / kPanelRows), static_cast<int>(row % kPanelRows), numbers);
  Hadamard(numbers, block_);
  for (size_t k = 0; k < scales_.size(); ++k) out[k] *= scales_[k];
}

}  // namespace baton::kernels::cpu
