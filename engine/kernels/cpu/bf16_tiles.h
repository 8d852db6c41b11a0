// The products of format_bf16.cc, cut into tiles: this file defines cpu-bf16x32/1, and has the tiles of each
// instruction set. Pure functions, any thread.
//
//   panel := block[ceil(cols / 32)]   block := pair[16]   pair := word[64], one for each row
//
// A word has two columns of its row: the earlier one in its high half, the next one in its low half. Columns
// that a matrix lacks are zeros, in x too. A row of x is rounded to bfloat16 first, to the nearest, ties to
// even. Each output is then made of float32 multiply-adds that round once:
//
//   C = bias, or 0;   for each block of 32 columns k:
//     A = 0; for k = 0 .. 15: A = fma(x[k], w[k], A)
//     B = 0; for k = 16 .. 31: B = fma(x[k], w[k], B)
//     C = C + (A + B)
//
// A number below 2^-126 counts as a zero of its sign, wherever one is read or made (FlushesDenormals). The
// payload of a NaN is not defined. VDPBF16PS computes a word's part of A or B, the high half first; TDPBF16PS
// computes A and B of words of columns k and k + 16 (bf16_amx.h); float32 multiply-adds have the same bits.
// Every output depends on its own row of x alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/cpu/format.h"

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
  const std::byte* w;  // blocks of a panel
  int64_t blocks;
  float* sums;  // C: [rows][64]
  // With each pair of columns, so many cache lines are fetched from memory for tiles to come, from here on,
  // into the second-level cache.
  const std::byte* ahead;
  int lines;
};

// BF16Tiles has the tiles of an instruction set.
struct BF16Tiles {
  static constexpr int kMostRows = 6, kMostAbreast = kFloatPanelsAbreast;
  using Multiply = void (*)(const BF16Tile& tile);

  int64_t x_block_bytes;  // of a block of a row of x
  // Writes a row of x [cols], rounded: BF16Blocks(cols) blocks, all of their bytes.
  void (*round)(const float* x, int64_t cols, std::byte* row);
  int rows;       // of the tile that is fastest when weights are in a cache
  bool one_pass;  // a tile reads weights once, not once for each of several groups of their rows
  Multiply by_rows[kMostRows];  // [r]: of r + 1 rows
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
  FlushesDenormals() {}
  static constexpr bool kWorks = false;
#endif

 public:
  FlushesDenormals(const FlushesDenormals&) = delete;
  FlushesDenormals& operator=(const FlushesDenormals&) = delete;
};

#if defined(__x86_64__)
// These tiles run VDPBF16PS: only for processors that have it.
extern const BF16Tiles kBF16DotTiles;
// True if this processor has AVX512_BF16.
bool HasBF16Dot();
#endif

#if defined(__x86_64__)
// True if tiles of AMX (bf16_amx.h) give the bits of multiply-adds on this processor, and sooner. Only for
// processors that have them. The first call tries them, which takes some milliseconds.
bool BF16AmxIsBetter();
#endif

// Returns the tiles that run multiply-adds of float32.
const BF16Tiles& BF16MultiplyAddTiles(Isa isa);
// Returns the fastest tiles that give the bits of those. The first call for kAvx512Vnni or kAmx tries the
// processor, which takes some milliseconds.
const BF16Tiles& BF16TilesFor(Isa isa);

}  // namespace baton::kernels::cpu
