// The products of format_i8.cc, cut into tiles: what its instruction sets share, and the tiles of each. An
// int32 sum of products of integers is exact, so how a product is cut never shows in it. Pure functions, any
// thread.
//
//   panel := step[ceil(cols / 4)], scale[64]      step := 64 rows of 4 bytes: columns 4s .. 4s + 3
//
// A weight w in [-127, 127] is kept as the byte w + 128: the instruction for products of bytes wants one side
// without a sign. So each sum begins at -128 times the sum of the row of x, which takes that back. Rows and
// columns that a matrix lacks are 0 bytes; x has zeros there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/cpu/format.h"

namespace baton::kernels::cpu {

inline constexpr int kI8Step = 4;  // columns
inline constexpr int64_t kI8StepBytes = kI8Step * kPanelRows;
inline constexpr int kI8Offset = 128;
inline constexpr int64_t kI8LineBytes = 64;  // of a cache: a step of a panel is four of them

constexpr int64_t I8Steps(int64_t cols) { return (cols + kI8Step - 1) / kI8Step; }

// `rows` rows of x (as many as the tile is made for) against the 64 rows of some steps of a panel.
struct I8Tile {
  const std::byte* x;  // the first step of the first row
  int64_t x_stride;    // bytes
  const std::byte* panel;
  int64_t steps;
  int32_t* sums;  // [rows][64], to which it adds
  // With each step, so many cache lines are fetched from memory for tiles to come, from here on, into the
  // second-level cache. (What a tile streams itself, the processor fetches best alone.)
  const std::byte* ahead;
  int lines;
};

// The tiles of an instruction set.
struct I8Tiles {
  static constexpr int kMostRows = 6;
  int rows;                                        // of the largest tile
  int64_t step_bytes;                              // of a step of x: 4 integers of 1 or 2 bytes
  void (*by_rows[kMostRows])(const I8Tile& tile);  // [r]: of r + 1 rows
  // One row of x against several panels, `panel_bytes` apart: sums [panels][64]. 1 and null: none.
  int abreast = 1;
  void (*one_row)(const I8Tile& tile, int64_t panel_bytes) = nullptr;
};

#if defined(__x86_64__)
// With VPDPBUSD. Only for processors that have it.
extern const I8Tiles kI8VnniTiles;
#endif

const I8Tiles& I8TilesFor(Isa isa);

// Begins sums [rows][64] of rows of a product of such panels, from row `first` on.
void BeginI8Sums(const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums);

}  // namespace baton::kernels::cpu
