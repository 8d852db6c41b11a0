// How attention is cut into pieces: what host and device code must agree on. Constants and pure functions.
#pragma once

#include <cstdint>

namespace baton::kernels::cuda {

// Split-KV decoding (Flash-Decoding): the keys that a row attends to, `length` of them, are cut into at most
// kMaxSplits runs of at least kMinSplitTokens, whole tiles each. The cut is a function of the length
// alone, so a row's bits don't depend on its batch. Runs of 64 made a step of 256 rows of 1,024 keys a third
// slower on an H100, and one of one row no faster: too little is read between a block's start and its merge.
inline constexpr int kMaxSplits = 32;
inline constexpr int kMinSplitTokens = 256;
constexpr int64_t SplitTokens(int64_t length) {
  const int64_t even = (length + kMaxSplits - 1) / kMaxSplits;
  const int64_t tiles = (even + kMinSplitTokens - 1) / kMinSplitTokens;
  return (tiles > 0 ? tiles : 1) * kMinSplitTokens;
}
constexpr int SplitCount(int64_t length) {
  return static_cast<int>((length + SplitTokens(length) - 1) / SplitTokens(length));
}
// How a step's table names a token that the host does not know yet: -1 is a padding row, and lower words are
// draws of the step before. The function is its own inverse.
constexpr int32_t TakenWord(int32_t draw) { return -2 - draw; }
// Rows of a query tile of the prefill kernel: pairs of (token, head of the GQA group), token by token.
inline constexpr int kTileRows = 128;

// One tile: packed rows [first, first + kTileRows) of the sequence's rows x group.
struct PrefillTile {
  int32_t first_row;       // of the sequence, in the batch
  int32_t rows;            // of the sequence
  int32_t first_position;  // of its first row
  int32_t first_block;     // index into StepTable's blocks
  int32_t first;           // packed row
  int32_t padding[3];
};
static_assert(sizeof(PrefillTile) == 32);

}  // namespace baton::kernels::cuda
