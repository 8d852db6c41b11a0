// Attention over KV in bfloat16: what the products of one tile are, for attention.cc. The definition of
// cpu-kv-bf16x32/1, where p are the tile's probabilities before normalization:
//
//   score[t] = the output of bf16_tiles.h for x = q * scale * log2(e) and w = the key of t
//   out[d]   = the output of bf16_tiles.h for x = p and w[t] = value[t][d], from out[d] on
//
// So a query and probabilities are rounded to bfloat16; the sum of the probabilities is of those before that.
// A token that a query does not see adds nothing to it, whatever its value is. A number below 2^-126 counts
// as a zero throughout a pass that has keys or values in bfloat16. With values in bfloat16, an output of -0
// becomes 0 before it is divided by the sum.
//
// KV is read where it lies, a pair of rows of a block at a time: two dimensions of keys, or two tokens of
// values. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/cpu/attention_tile.h"
#include "engine/kernels/cpu/bf16_tiles.h"

namespace baton::kernels::cpu {

// Rows of `x`, as BF16Way::round leaves them, `x_stride` bytes apart.
struct BF16Scores {
  int rows;  // 1..BF16Way::rows
  const std::byte* x;
  int64_t x_stride;
  int head_dim;
  const TileOfBlocks* keys;
  int first_block, end_block;  // of the tile; some beyond them may be computed, too
  float* scores;               // [rows][64]
};
struct BF16Mix {
  int rows;            // 1..BF16Way::rows
  const std::byte* x;  // [rows][64]: 0 for what a row does not see
  int64_t x_stride;
  TokenRange range;  // that any of the rows sees: nothing else is read
  const TileOfBlocks* values;
  int head_dim;
  float* out;  // OutPanel
};

// The passes of an instruction set.
struct BF16Attention {
  void (*score)(const BF16Scores& job);
  void (*mix)(const BF16Mix& job);
};

#if defined(__x86_64__)
// With VDPBF16PS, of the rows of kBF16DotTiles.
extern const BF16Attention kBF16DotAttention;
// With TDPBF16PS, of rows of bf16_amx.h.
extern const BF16Attention kBF16AmxAttention;
#endif

}  // namespace baton::kernels::cpu
