// Products by the tiles of AMX: registers of 16 rows of 64 bytes, of which one instruction multiplies two and
// adds to a third. This file cuts a product into them; amx_tiles.cc has the instructions. TDPBSUD adds
// products of signed with unsigned bytes, exactly; TDPBF16PS adds, in each word, a chain of multiply-adds
// over the low halves of 16 words and one over the high halves (Intel's manual, volume 2). Pure functions,
// any thread.
//
//   row of x   := step[steps]           of 64 bytes, at any address
//   panel      := step[steps]           step := 16 lines := 64 rows of the matrix, a word of 4 bytes each
//
// Word i of a step of a row of x is multiplied with line i of the panel's step: with 64 columns of bytes, or
// 32 of bfloat16.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/kernels/cpu/format.h"

namespace baton::kernels::cpu {

inline constexpr int kTileRows = 16;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileStepBytes = 16 * 4 * kPanelRows;  // of a panel

// Rows of x against the 64 rows of some steps of a panel.
struct TileProduct {
  const std::byte* x;  // the first step of the first row
  int64_t x_stride;    // bytes
  int64_t rows;
  const std::byte* panel;
  int64_t steps;
  std::byte* sums;  // [rows][64] words, int32 or float32, to which it adds
  // For each step, about so many bytes are fetched from here on: into the second-level cache, or, with up to
  // 16 rows, which pass by in less time than memory takes, into the first.
  const std::byte* ahead;
  int64_t ahead_step;
};

// Steps of a panel that are multiplied at once: 64 KiB.
inline constexpr int64_t kMostTileSteps = 16;

// Orders a product of several panels: visit(begin, count, panel) takes up to kMostTileSteps steps of a panel.
// A block of the rows of x stays in the second-level cache for all panels.
template <class Visit>
void ForTileSteps(int64_t steps, int64_t rows, int panels, const Visit& visit) {
  // Few rows take fewer steps, which are in the first-level cache while they are read again.
  const int64_t most = rows <= kTileRows ? kMostTileSteps / 4 : kMostTileSteps;
  const int64_t block = panels > 1 ? 2 * kMostTileSteps : steps;
  for (int64_t from = 0; from < steps; from += block) {
    const int64_t end = std::min(from + block, steps);
    for (int panel = 0; panel < panels; ++panel) {
      for (int64_t begin = from; begin < end; begin += most) visit(begin, std::min(most, end - begin), panel);
    }
  }
}

#if defined(__x86_64__)

#define BATON_AMX __attribute__((target("amx-tile,amx-int8,amx-bf16")))

// Products of int8 rows with bytes 0 to 255, as int32.
void MultiplyByteTiles(const TileProduct& product);
// Products of bfloat16 in words of columns k and k + 16 of a block of 32, the earlier one in the low half:
// as bf16_tiles.h defines them.
void MultiplyBF16Tiles(const TileProduct& product);

// Holds `number` in each byte of all tiles for as long as go_on() says: true if they are there afterwards.
bool HoldTiles(uint8_t number, absl::FunctionRef<bool()> go_on);

// Cuts a product into tiles of `Unit`, whose functions are static:
//   Configure(a, b)    tiles 0, 1, 4 get `a` rows, 2, 3, 5 get `b`, 6 and 7 get 16
//   ConfigureWide(a)   tiles 0 to 4 get `a` rows, 5 to 7 get 16
//   Load<tile>(from, stride), Store<tile>(to, stride), Multiply<sums, x, panel>(), Release()
template <class Unit>
struct TileRows {
  static constexpr int64_t kSumStride = kPanelRows * 4, kTileBytes = 16 * 4, kLineBytes = 4 * kPanelRows;

  static BATON_AMX void Multiply(const TileProduct& product) {
    constexpr int64_t kSquareRows = 2 * kTileRows;
    // Three times 16 rows take one configuration, which costs as much as ten products of tiles.
    const int64_t whole = product.rows == 3 * kTileRows ? 0 : product.rows / kSquareRows * kSquareRows;
    const int64_t rest = product.rows - whole;
    const std::byte* ahead = product.ahead;
    if (whole > 0) {
      Unit::Configure(kTileRows, kTileRows);
      // Half of the panel stays in the first-level cache, or the second, while rows pass by.
      const int lines = LinesOf(product, whole / kTileRows);
      for (int half = 0; half < 2; ++half) {
        for (int64_t row = 0; row < whole; row += kSquareRows) Square(product, row, half, lines, ahead);
      }
    }
    if (rest > kSquareRows) {
      Unit::ConfigureWide(kTileRows);
      Wide<true>(product, 0);
      Wide<false>(product, kTileRows);
      Wide<false>(product, kSquareRows);
    } else if (rest > kTileRows) {
      Unit::Configure(kTileRows, static_cast<int>(rest) - kTileRows);
      const int lines = whole > 0 ? 0 : LinesOf(product, 2);
      for (int half = 0; half < 2; ++half) Square(product, whole, half, lines, ahead);
    } else if (rest > 0) {
      Unit::ConfigureWide(static_cast<int>(rest));
      whole > 0 ? Wide<false>(product, whole) : Wide<true>(product, whole);
    }
    Unit::Release();
  }

 private:
  // Lines to fetch with each step of each of so many passes.
  static int LinesOf(const TileProduct& product, int64_t passes) {
    return static_cast<int>((product.ahead_step / kTileRowBytes + passes - 1) / passes);
  }

  // Up to 32 rows of x from row `row` on against 32 rows of the panel.
  static BATON_AMX void Square(const TileProduct& product, int64_t row, int half, int lines,
                               const std::byte*& ahead) {
    const std::byte* x = product.x + row * product.x_stride;
    const int64_t x_stride = product.x_stride, second = kTileRows * x_stride;
    const std::byte* panel = product.panel + half * 2 * kTileBytes;
    std::byte* const sums = product.sums + row * kSumStride + half * 2 * kTileBytes;
    std::byte* const below = sums + kTileRows * kSumStride;
    Unit::template Load<0>(sums, kSumStride);
    Unit::template Load<1>(sums + kTileBytes, kSumStride);
    Unit::template Load<2>(below, kSumStride);
    Unit::template Load<3>(below + kTileBytes, kSumStride);
    const std::byte* fetched = ahead;
    for (int64_t s = 0; s < product.steps; ++s) {
      Unit::template Load<4>(x, x_stride);
      Unit::template Load<6>(panel, kLineBytes);
      Unit::template Load<5>(x + second, x_stride);
      Unit::template Load<7>(panel + kTileBytes, kLineBytes);
      for (int line = 0; line < lines; ++line) __builtin_prefetch(fetched + line * kTileRowBytes, 0, 2);
      fetched += lines * kTileRowBytes;
      Unit::template Multiply<0, 4, 6>();
      Unit::template Multiply<1, 4, 7>();
      Unit::template Multiply<2, 5, 6>();
      Unit::template Multiply<3, 5, 7>();
      x += kTileRowBytes;
      panel += kTileStepBytes;
    }
    ahead = fetched;
    Unit::template Store<0>(sums, kSumStride);
    Unit::template Store<1>(sums + kTileBytes, kSumStride);
    Unit::template Store<2>(below, kSumStride);
    Unit::template Store<3>(below + kTileBytes, kSumStride);
  }

  // Up to 16 rows of x from row `row` on against all rows of the panel, which is read once, from its begin to
  // its end.
  template <bool kFetches>
  static BATON_AMX void Wide(const TileProduct& product, int64_t row) {
    const std::byte* x = product.x + row * product.x_stride;
    const int64_t x_stride = product.x_stride;
    const std::byte *panel = product.panel, *ahead = product.ahead;
    std::byte* const sums = product.sums + row * kSumStride;
    Unit::template Load<0>(sums, kSumStride);
    Unit::template Load<1>(sums + kTileBytes, kSumStride);
    Unit::template Load<2>(sums + 2 * kTileBytes, kSumStride);
    Unit::template Load<3>(sums + 3 * kTileBytes, kSumStride);
    for (int64_t s = 0; s < product.steps; ++s) {
      if constexpr (kFetches) {
        for (int64_t at = 0; at < product.ahead_step; at += kTileRowBytes) {
          __builtin_prefetch(ahead + at, 0, 3);
        }
        ahead += product.ahead_step;
      }
      Unit::template Load<4>(x, x_stride);
      Unit::template Load<5>(panel, kLineBytes);
      Unit::template Load<6>(panel + kTileBytes, kLineBytes);
      Unit::template Multiply<0, 4, 5>();
      Unit::template Load<7>(panel + 2 * kTileBytes, kLineBytes);
      Unit::template Multiply<1, 4, 6>();
      Unit::template Load<5>(panel + 3 * kTileBytes, kLineBytes);
      Unit::template Multiply<2, 4, 7>();
      Unit::template Multiply<3, 4, 5>();
      x += kTileRowBytes;
      panel += kTileStepBytes;
    }
    Unit::template Store<0>(sums, kSumStride);
    Unit::template Store<1>(sums + kTileBytes, kSumStride);
    Unit::template Store<2>(sums + 2 * kTileBytes, kSumStride);
    Unit::template Store<3>(sums + 3 * kTileBytes, kSumStride);
  }
};

#endif

}  // namespace baton::kernels::cpu
