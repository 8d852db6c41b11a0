// What attention over KV in integers needs beside the vector code of its instruction set
// (integer_attention-inl.h): the tiles of int8 products, and the memory of a tile of KV in their form.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/kernels/cpu/attention.h"
#include "common/kernels/cpu/attention_tile.h"
#include "common/kernels/cpu/format.h"
#include "common/kernels/cpu/i8_tiles.h"
#include "common/kernels/cpu/integer_product.h"
#include "common/kv/store/i4_vector.h"

namespace baton::kernels::cpu {

// Query vectors that go through a tile together.
inline constexpr int kMostIntegerRows = 6;
// 64 numbers of 64 tokens' values.
inline constexpr int64_t kIntegerValueChunk = kTileTokens / kI8Step * kI8StepBytes;

static_assert(kTileTokens == kPanelRows);

// The levels of i4, plus 128.
inline constexpr auto kOffsetLevels = [] {
  std::array<uint8_t, kv::kI4Levels.size()> levels{};
  for (size_t i = 0; i < levels.size(); ++i) levels[i] = static_cast<uint8_t>(kv::kI4Levels[i] + kI8Offset);
  return levels;
}();

// Of an instruction set.
struct IntegerProducts {
  const IntegerKernel* rows;  // quantizes queries
  const I8Tiles* tiles;
};

// Keys and values of 64 tokens of one head, as panels (i8_tiles.h).
struct IntegerTile {
  alignas(64) uint8_t keys[kMaxHeadDim / kI8Step * kI8StepBytes];
  alignas(64) uint8_t values[kMaxHeadDim / kPanelRows * kIntegerValueChunk];
  alignas(64) float key_scales[kTileTokens];
  alignas(64) float value_scales[kTileTokens];
};

}  // namespace baton::kernels::cpu
