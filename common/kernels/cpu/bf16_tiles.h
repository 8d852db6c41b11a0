// The products of format_bf16.cc, cut into tiles: the definition of cpu-bf16x32/1, and the tiles of each
// instruction set. Pure functions, any thread.
//
//   panel := block[ceil(cols / 32)]      block := 16 pairs of columns      pair := 64 words of 32 bits, a
//   row's
//
// The high half of a word is the earlier column, the low half the next one; columns that a matrix lacks are
// zeros, in x too. A row of x is rounded to bfloat16 first, to the nearest, ties to even. Then, for each
// output, with float32 multiply-adds that round once:
//
//   C = bias, or 0;   for each block of 32 columns k:
//     A = 0; for k = 0 .. 15: A = fma(x[k], w[k], A)
//     B = 0; for k = 16 .. 31: B = fma(x[k], w[k], B)
//     C = C + (A + B)
//
// Numbers below 2^-126 count as zero, wherever one is read or made (FlushesDenormals). This is what TDPBF16PS
// computes of the pairs (k, k + 16), and what VDPBF16PS computes of a word, the high half first; by multiply-
// adds of float32 it has the same bits. Every output depends on its own row of x alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/kernels/cpu/format.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace baton::kernels::cpu {

inline constexpr int kBF16Block = 32;                      // columns
inline constexpr int kBF16Pairs = kBF16Block / 2;          // of a block
inline constexpr int64_t kBF16PairBytes = 4 * kPanelRows;  // of a panel: four lines of a cache
inline constexpr int64_t kBF16BlockBytes = kBF16Pairs * kBF16PairBytes;
inline constexpr int64_t kBF16LineBytes = 64;

constexpr int64_t BF16Blocks(int64_t cols) { return (cols + kBF16Block - 1) / kBF16Block; }

// `rows` rows of x (as many as the tile is made for) against the 64 rows of some blocks of a panel.
struct BF16Tile {
  const std::byte* x;  // the first block of the first row, as BF16Tiles::round left it
  int64_t x_stride;    // bytes
  const std::byte* w;  // blocks of a panel, or what BF16Tiles::expand made of them
  int64_t blocks;
  float* sums;  // C: [rows][64]
  // With each pair of columns, so many cache lines are fetched from memory for tiles to come, from here on,
  // into the second-level cache.
  const std::byte* ahead;
  int lines;
};

// The tiles of an instruction set.
struct BF16Tiles {
  static constexpr int kMostRows = 6;
  using Multiply = void (*)(const BF16Tile& tile);

  int64_t x_block_bytes;  // of a block of a row of x
  // A row of x [cols], rounded: BF16Blocks(cols) blocks.
  void (*round)(const float* x, int64_t cols, std::byte* row);
  int rows;                     // of the tile that is fastest when weights are in a cache
  Multiply by_rows[kMostRows];  // [r]: of r + 1 rows
  // Null, or: widens blocks to float32, [32 columns][64 rows] each, which many tiles multiply faster.
  void (*expand)(const std::byte* w, int64_t blocks, float* out);
  Multiply expanded_by_rows[kMostRows];
  // One row of x against `abreast` panels, `panel_bytes` apart: sums [abreast][64]. 1 and null: none.
  int abreast = 1;
  void (*one_row)(const BF16Tile& tile, int64_t panel_bytes) = nullptr;
};

// While it lives, float32 arithmetic of this thread takes numbers below 2^-126 for zero and makes none.
class FlushesDenormals {
 public:
#if defined(__x86_64__)
  FlushesDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushesDenormals() { _mm_setcsr(before_); }
  static constexpr bool kWorks = true;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;  // of MXCSR
  const unsigned before_;
#else
  static constexpr bool kWorks = false;
#endif

 public:
  FlushesDenormals(const FlushesDenormals&) = delete;
  FlushesDenormals& operator=(const FlushesDenormals&) = delete;
};

#if defined(__x86_64__)
// With VDPBF16PS. Only for processors that have it.
extern const BF16Tiles kBF16DotTiles;
bool HasBF16Dot();
#endif

// By multiply-adds of float32.
const BF16Tiles& BF16MultiplyAddTiles(Isa isa);
// The fastest tiles that give the bits of those: the processor is tried when it is first asked.
const BF16Tiles& BF16TilesFor(Isa isa);

}  // namespace baton::kernels::cpu
