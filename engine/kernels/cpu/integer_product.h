// Code shared by the formats of integer weights (format_i8.cc, format_i4.cc): rows of x as integers, and the
// way from exact sums to floats. Both are the definition of cpu-i8/1, and, of rows that ColumnTransform has
// been applied to (as floats, each sum and product rounded once), of cpu-i8/2:
//
//   row of x:  a[k] = x[k] * (127 / max|x|), to the nearest integer, ties to even; d = max|x| / 127
//   out[m][n] = float(sum over k of a[m][k] w[n][k]) * (d[m] * s[n]) (+ bias[n])
//
// The sum is an exact int32, whatever order, width or thread adds it up. It becomes a float once (to the
// nearest, ties to even); the product of the scales, the product with it and the sum with the bias are
// rounded once each. A row whose largest magnitude is below 2^-100 counts as zeros (d = 0), and one with
// an infinity or a NaN makes NaNs (d = NaN, a = 0). All instruction sets do precisely this. Pure functions,
// any thread.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/format.h"

namespace baton::kernels::cpu {

// Columns whose sum of products stays within 32 bits, with weights as bytes up to 255.
inline constexpr int64_t kMostIntegerColumns = INT_MAX / (127 * 255);
// Rows of x that go through a panel together. Their sums take 24 KiB, or, for tiles of AMX, which take
// several panels, 256 KiB.
template <Isa isa>
constexpr int64_t kIntegerChunkRows = isa == Isa::kAmx ? 256 : 96;
// Panels that share their sums' room.
template <Isa isa>
constexpr int64_t kIntegerPanels = isa == Isa::kAmx ? kTilePanelsTogether : 1;
// Where the integers of a quantized row of x begin: behind its head, on a line of a cache.
inline constexpr int64_t kIntegersAt = 64;

// Head of a quantized row of x; the row's integers begin at kIntegersAt.
struct IntegerRowHead {
  float scale;  // an integer times this is about the number that it stands for
  int32_t sum;  // of the integers
};

inline IntegerRowHead HeadOf(const std::byte* row) {
  IntegerRowHead head;
  std::memcpy(&head, row, sizeof head);
  return head;
}

// The integers of a row of x [cols], with the `largest` magnitude that sets their scale.
template <Isa isa>
IntegerRowHead QuantizeRow(const float* x, int64_t cols, int32_t largest, int8_t* out);
// IntegerKernel::largest
template <Isa isa>
int32_t LargestOfRow(const float* x, int64_t cols);
// Rows of sums become rows of job.out: row `first` of the job is the first of them. scales [64].
template <Isa isa>
void ScaleRows(const PanelProduct& job, const float* scales, int64_t first, int64_t rows, const int32_t* sums,
               int64_t stride);

// A format's products. Of `Integers` they take, all static, and templates by Isa but for the last:
//   int64_t RowBytes(cols), void Quantize(x, cols, largest, row): as in IntegerKernel, any number of bytes
//   void SumChunk(job, first, rows, sums): up to kIntegerChunkRows<isa> rows of the job from row `first` on,
//     into sums [panels][rows][64]
//   void SumAbreast(job, sums): one row of x and all panels of the job, sums [panels][64]
//   const float* ScalesOf(panel, cols): [64]
template <class Integers, Isa isa>
struct IntegerProduct {
  static int64_t RowBytes(int64_t cols) { return (Integers::template RowBytes<isa>(cols) + 63) / 64 * 64; }
  static void Sum(const PanelProduct& job, int32_t* sums, int64_t stride) {
    alignas(64) int32_t chunk[kIntegerChunkRows<isa> * kPanelRows];
    for (int64_t first = 0; first < job.rows; first += kIntegerChunkRows<isa>) {
      const int64_t rows = std::min(kIntegerChunkRows<isa>, job.rows - first);
      Integers::template SumChunk<isa>(job, first, rows, chunk);
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(chunk + r * kPanelRows, job.width, sums + (first + r) * stride);
      }
    }
  }
  static void Finish(const PanelProduct& job, const int32_t* sums, int64_t stride) {
    ScaleRows<isa>(job, Integers::ScalesOf(job.panel, job.depth), 0, job.rows, sums, stride);
  }
  static void Multiply(const PanelProduct& job) {
    alignas(64) int32_t sums[kIntegerPanels<isa> * kIntegerChunkRows<isa> * kPanelRows];
    if (job.rows == 1 && job.panels > 1) {
      Integers::template SumAbreast<isa>(job, sums);
      for (int p = 0; p < job.panels; ++p) {
        const PanelProduct one = job.Of(p);
        ScaleRows<isa>(one, Integers::ScalesOf(one.panel, one.depth), 0, 1, sums + p * kPanelRows,
                       kPanelRows);
      }
      return;
    }
    for (int64_t first = 0; first < job.rows; first += kIntegerChunkRows<isa>) {
      const int64_t rows = std::min(kIntegerChunkRows<isa>, job.rows - first);
      Integers::template SumChunk<isa>(job, first, rows, sums);
      // Some rows of all panels at a time: pieces of a row of the output are neighbours.
      constexpr int64_t kSome = 4;
      for (int64_t r = 0; r < rows; r += kSome) {
        for (int p = 0; p < job.panels; ++p) {
          const PanelProduct one = job.Of(p);
          ScaleRows<isa>(one, Integers::ScalesOf(one.panel, one.depth), first + r, std::min(kSome, rows - r),
                         sums + (p * rows + r) * kPanelRows, kPanelRows);
        }
      }
    }
  }
  static constexpr IntegerKernel kKernel = {.row_bytes = &RowBytes,
                                            .largest = &LargestOfRow<isa>,
                                            .quantize = &Integers::template Quantize<isa>,
                                            .sum = &Sum,
                                            .finish = &Finish};
};

template <class Integers>
WeightFormat::Product IntegerProductFor(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return &IntegerProduct<Integers, Isa::kBaseline>::Multiply;
    case Isa::kAvx2:
      return &IntegerProduct<Integers, Isa::kAvx2>::Multiply;
    case Isa::kAvx512:
      return &IntegerProduct<Integers, Isa::kAvx512>::Multiply;
    case Isa::kAvx512Vnni:
      return &IntegerProduct<Integers, Isa::kAvx512Vnni>::Multiply;
    case Isa::kAmx:
      return &IntegerProduct<Integers, Isa::kAmx>::Multiply;
  }
  return nullptr;
}

template <class Integers>
const IntegerKernel* IntegerKernelFor(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return &IntegerProduct<Integers, Isa::kBaseline>::kKernel;
    case Isa::kAvx2:
      return &IntegerProduct<Integers, Isa::kAvx2>::kKernel;
    case Isa::kAvx512:
      return &IntegerProduct<Integers, Isa::kAvx512>::kKernel;
    case Isa::kAvx512Vnni:
      return &IntegerProduct<Integers, Isa::kAvx512Vnni>::kKernel;
    case Isa::kAmx:
      return &IntegerProduct<Integers, Isa::kAmx>::kKernel;
  }
  return nullptr;
}

}  // namespace baton::kernels::cpu
