// The passes of attention over one tile of KV share this: 64 tokens, four blocks (attention.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/base/ids.h"
#include "engine/kernels/cpu/attention.h"
#include "engine/kernels/cpu/format.h"

namespace baton::kernels::cpu {

inline constexpr int kTileBlocks = 4;
inline constexpr int kTileTokens = kTileBlocks * kBlockTokens;
// Query vectors that go through a tile together.
inline constexpr int kSideBySide = 6;

static_assert(kTileTokens == kPanelRows);

// Tokens of a tile that a query sees, relative to the tile's start; empty if begin >= end.
struct TokenRange {
  int begin, end;
  bool empty() const { return begin >= end; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// A tile's keys, or its values: where its blocks lie, and those of the next tile, which are fetched from
// memory while this one is worked on, if `ahead`.
struct TileOfBlocks {
  const std::byte* now[kTileBlocks];
  const std::byte* next[kTileBlocks];
  bool ahead;
};

// A tile's keys and values in integers as panels of 64 rows, for the tiles of int8 products: keys as 64 rows,
// one of each token; values as a row of each number of a head, 64 to a panel. It lives in the first-level
// cache, and is made once for all queries of a pass.
struct IntegerTile {
  alignas(64) uint8_t keys[kMaxHeadDim * kTileTokens];
  alignas(64) uint8_t values[kMaxHeadDim * kTileTokens];
  alignas(64) float key_scales[kTileTokens];
  alignas(64) float value_scales[kTileTokens];
};

// The outputs of a pass: number d of query vector i is at out[OutPanel(d) + i * 64 + d % 64], so that the
// tiles of a panel add to it in place.
constexpr int64_t OutPanel(int d) { return d / kPanelRows * int64_t{kQueryTile} * kPanelRows; }

// visit(n) with n.value = rows, 1..kSideBySide, as a constant.
template <class Visit>
void WithRows(int rows, const Visit& visit) {
  static_assert(kSideBySide == 6);
  switch (rows) {
    case 1:
      return visit(std::integral_constant<int, 1>());
    case 2:
      return visit(std::integral_constant<int, 2>());
    case 3:
      return visit(std::integral_constant<int, 3>());
    case 4:
      return visit(std::integral_constant<int, 4>());
    case 5:
      return visit(std::integral_constant<int, 5>());
    default:
      return visit(std::integral_constant<int, kSideBySide>());
  }
}

}  // namespace baton::kernels::cpu
