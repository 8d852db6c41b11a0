#include "common/kernels/cpu/panels.h"

#include <fmt/format.h>

#include <algorithm>
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
                             QuantizedRows quantized, int count) const {
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
          .quantized = quantized,
          .panels = count,
          .panel_bytes = panel_bytes_};
}

void Panels::ReadRow(int64_t row, float* out) const {
  format_.ReadRow(panel(row / kPanelRows), static_cast<int>(row % kPanelRows),
                  {out, static_cast<size_t>(cols())});
}

}  // namespace baton::kernels::cpu
