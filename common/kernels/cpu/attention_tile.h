// What the passes of attention over one tile of KV share: 64 tokens, four blocks (attention.cc).
#pragma once

#include <cstddef>

#include "common/base/ids.h"

namespace baton::kernels::cpu {

inline constexpr int kTileBlocks = 4;
inline constexpr int kTileTokens = kTileBlocks * kBlockTokens;

// Tokens of a tile that a query sees, relative to the tile's start; empty if begin >= end.
struct TokenRange {
  int begin, end;
  bool empty() const { return begin >= end; }
};

// A tile's keys, or its values: where its blocks lie, and those of the next tile, which are fetched from
// memory while this one is worked on, if `ahead`.
struct TileOfBlocks {
  const std::byte* now[kTileBlocks];
  const std::byte* next[kTileBlocks];
  bool ahead;
};

}  // namespace baton::kernels::cpu
