// WeightFormat: one way in which the cpu backend keeps and multiplies a weight matrix. Each format has a file
// of its own, format_NAME.cc: how it packs, what its product rounds, how it reads a row back. A format is
// chosen once, when a matrix is packed, and the product for the instruction set in use travels with the
// matrix (see panels.h).
//
// All formats cut a matrix [rows, cols] into panels of 64 rows (output features), so that the backend can
// share out a product's work without knowing formats. What a panel's bytes mean is the format's own affair. A
// product computes a row of the output from that row of x alone, whatever the rows beside it. Constant; any
// thread.
//
// A format may want each row of x in another form (RowKernel), made once for all panels; one that multiplies
// integers (IntegerKernel) wants integers.
//
// A new format: a file, a line in FormatFor (formats.cc), and numerics of its own if its product rounds
// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/kernels/cpu/isa.h"
#include "engine/kernels/weight_view.h"

namespace baton::kernels::cpu {

inline constexpr int kPanelRows = 64;
// Panels side by side for one row of x, where vectors have 16 lanes (WeightFormat::Abreast).
inline constexpr int kFloatPanelsAbreast = 2;
// Panels side by side for many rows of x, by tiles of AMX (WeightFormat::Together), and how many are many.
inline constexpr int kTilePanelsTogether = 4, kManyRows = 64;

// Rows of x as a RowKernel, or an IntegerKernel's `quantize`, left them.
struct PreparedRows {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // bytes

  PreparedRows From(int64_t row) const { return {data + row * stride, stride}; }
};

// Rows of x against one panel: out[m][n] = sum over k of x[m][k] w[n][k], plus bias[n]. Or one row of x, or
// many, against several panels that lie behind one another (WeightFormat::Abreast, Together).
struct PanelProduct {
  const float* x;  // [rows][x_stride], the first `depth` of each row count
  int64_t x_stride;
  int64_t rows;
  int64_t depth;
  const std::byte* panel;
  const float* bias;  // [width], or null
  float* out;         // [rows][out_stride], the first `width` of each row are written
  int64_t out_stride;
  int width;  // rows of the panels that the matrix has: 1..64 of the last, all of those before it
  // The same rows for a format with a RowKernel or an IntegerKernel, which does not read x then.
  PreparedRows prepared = {};
  int panels = 1;
  int64_t panel_bytes = 0;  // from one to the next

  // The same of panel `i` alone.
  PanelProduct Of(int i) const {
    PanelProduct one = *this;
    one.panel += i * panel_bytes;
    if (bias != nullptr) one.bias += i * kPanelRows;
    one.out += i * kPanelRows;
    one.width = width - i * kPanelRows < kPanelRows ? width - i * kPanelRows : kPanelRows;
    one.panels = 1;
    return one;
  }
};

// RowKernel makes of a row of x what a product reads. Any thread.
struct RowKernel {
  // Bytes of a row of so many columns: whole lines of a cache.
  int64_t (*bytes)(int64_t cols);
  // Writes the row of x [cols] to `row`: all of its bytes, aligned to 4.
  void (*write)(const float* x, int64_t cols, std::byte* row);
};

// The steps of a product of integers, for those that need them one by one. The product of a matrix's columns
// that are split over ranks takes `largest` of the whole row, and adds up the ranks' sums, before `finish`:
// it then has the bits of the product that was never split.
struct IntegerKernel {
  // Bytes of a quantized row of so many columns: whole lines of a cache.
  int64_t (*row_bytes)(int64_t cols);
  // The largest magnitude in x [cols], as the bits of a float: their order as integers is that of the
  // magnitudes, with infinity and NaN at the end.
  int32_t (*largest)(const float* x, int64_t cols);
  // One row of x, with the `largest` that is to set its scale.
  void (*quantize)(const float* x, int64_t cols, int32_t largest, std::byte* row);
  // The exact sums of the products of integers: sums[m][n], `stride` values between rows, `width` of each row
  // written. Of `job`, reads prepared, rows, depth, panel and width.
  void (*sum)(const PanelProduct& job, int32_t* sums, int64_t stride);
  // job.out = these sums, scaled, plus the bias. Of `job`, reads all that `sum` doesn't, too.
  void (*finish)(const PanelProduct& job, const int32_t* sums, int64_t stride);
};

// The numerics of products of integers in transformed columns; those of others are their format's.
inline constexpr std::string_view kTransformedNumerics = "cpu-i8/2";

class WeightFormat {
 public:
  using Product = void (*)(const PanelProduct&);

  virtual ~WeightFormat() = default;
  // "bf16": for messages.
  virtual std::string_view name() const = 0;
  // The class of the product's rounding. Products of equal numerics give equal bits for equal weights and
  // activations, whatever the instruction set; a format whose packing loses precision names how it does that,
  // too.
  virtual std::string_view numerics(Isa isa) const = 0;
  virtual bool Takes(const WeightView& part) const = 0;

  virtual int64_t PanelBytes(int64_t cols) const = 0;
  // Row `from` of `part` becomes row `row` of a panel, whose bytes were zero at first.
  virtual void PackRow(const WeightView& part, int64_t from, std::byte* panel, int row) const = 0;
  // Row `row` of a panel as out.size() floats.
  virtual void ReadRow(const std::byte* panel, int row, std::span<float> out) const = 0;
  virtual Product ProductFor(Isa isa) const = 0;
  // Panels that the product takes side by side for one row of x: what it does is wait for memory, and several
  // streams of it are read faster than one.
  virtual int Abreast(Isa isa) const = 0;
  // Panels that the product takes together for kManyRows rows of x or more: a block of those rows is read for
  // all of them while it is in a cache, and rows of the output are written in longer pieces.
  virtual int Together(Isa) const { return 1; }
  // Null, or what makes the rows that the product wants.
  virtual const RowKernel* RowsFor(Isa isa) const { return nullptr; }
  // Null, or what quantizes them.
  virtual const IntegerKernel* IntegersFor(Isa isa) const { return nullptr; }
};

// float32; takes all that can be read as floats.
const WeightFormat& F32Format();
// bfloat16, as it is, times rows that are rounded to it (bf16_tiles.h).
const WeightFormat& BF16Format();
// int8 with one scale per row, around 0 (format_i8.cc).
const WeightFormat& I8Format();
// 4 bits that stand for such int8, by groups of 16 columns (format_i4.cc).
const WeightFormat& I4Format();

// The format for a matrix of these parts: the smallest that takes all of them, as float32 if their columns
// are transformed in different ways. It depends on the parts alone, so that workers that load equal weights
// keep them in equal formats.
const WeightFormat& FormatFor(std::span<const WeightView> parts);

}  // namespace baton::kernels::cpu
