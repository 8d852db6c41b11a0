// The products of format_i4.cc, cut into tiles: what its instruction sets share. Pure functions, any thread.
//
//   panel := block[ceil(cols / 32)], scale[64]
//   block := pair[4], group[64]        of 32 columns
//   pair  := 64 rows of 4 bytes        byte i: column 8p + i in the lower half, column 8p + 4 + i in the
//   upper group := a byte of each row        factor - 1 in the lower half, zero in the upper
//
// A weight is factor * (q - zero), an integer in [-127, 127]: q in 0 .. 15, a factor in 1 .. 16, a zero in
// 0 .. 15. Rows that a matrix lacks are 0 bytes, whose weights are 0; where it lacks columns, x has zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/cpu/format.h"
#include "engine/kernels/cpu/i8_tiles.h"

namespace baton::kernels::cpu {

inline constexpr int64_t kI4Group = 16;  // columns that share a factor and a zero
inline constexpr int kI4Groups = 2;      // of a block
inline constexpr int64_t kI4Block = kI4Groups * kI4Group;
inline constexpr int kI4Pairs = 2;  // of steps, in a group
inline constexpr int64_t kI4PairBytes = kI8Step * kPanelRows;
inline constexpr int64_t kI4GroupsAt = kI4Groups * kI4Pairs * kI4PairBytes;  // in a block
inline constexpr int64_t kI4BlockBytes = kI4GroupsAt + kI4Groups * kPanelRows;

constexpr int64_t I4Blocks(int64_t cols) { return (cols + kI4Block - 1) / kI4Block; }

// `rows` rows of x (as many as the tile is made for) against the 64 rows of a panel.
struct I4Tile {
  const std::byte* x;       // the first block's integers of the first row: 32 bytes each
  const std::byte* x_sums;  // the sums of the integers of each group, int32, of the first row
  int64_t x_stride;         // bytes, of both
  const std::byte* panel;
  int64_t blocks;
  int32_t* sums;  // [rows][64], to which it adds
};

// Tiles that multiply halves of bytes as they are.
struct I4Tiles {
  static constexpr int kMostRows = 6;
  int rows;                                        // of the largest tile
  void (*by_rows[kMostRows])(const I4Tile& tile);  // [r]: of r + 1 rows
  // One row of x against several panels, `panel_bytes` apart: sums [panels][64]. 1 and null: none.
  int abreast = 1;
  void (*one_row)(const I4Tile& tile, int64_t panel_bytes) = nullptr;
};

#if defined(__x86_64__)
// With VPDPBUSD. Only for processors that have it.
extern const I4Tiles kI4VnniTiles;
// The weights of some blocks, as steps of a panel of int8 (i8_tiles.h): 8 of each block.
void ExpandI4Vnni(const std::byte* panel, int64_t blocks, std::byte* steps);
#endif

}  // namespace baton::kernels::cpu
