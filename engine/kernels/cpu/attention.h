// Attention of query vectors over the paged KV of one head (online softmax, arXiv 1805.02867; tiling as in
// arXiv 2205.14135).
//
// KV is taken in tiles of 64 tokens that are aligned to absolute positions, and a query at position p goes
// through the tiles that hold (p - window, p], in order, and through exactly these tokens. Its running
// maximum, sum and output change at those borders only, so its bits depend on its own position and KV, never
// on which queries share the pass. Scores live in a buffer of one tile. Maximum and sum begin with the head's
// sink, if it has one.
//
// Keys and values in f32 are multiplied as such. Those in bf16 are multiplied with a query or with
// probabilities that are rounded to bfloat16 (bf16_attention.h), those in integers (i8, i4) with some
// that are rounded to integers (integer_attention-inl.h). Keys and values may be kept in different ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "engine/kernels/cpu/isa.h"

namespace baton::kernels::cpu {

inline constexpr int kMaxHeadDim = 256;
// Query vectors that share one pass over the KV.
inline constexpr int kQueryTile = 48;
// Query vectors from which on it pays to bring KV into another form for them.
inline constexpr int kManyVectors = 12;

// Where one head's KV of a sequence lies.
struct PagedHead {
  const std::byte* pool;
  int64_t block_bytes;
  int64_t key_offset;    // within a block: [stored_dim][kBlockTokens]
  int64_t value_offset;  // within a block: [kBlockTokens][stored_dim]
  tensor::DType key_dtype;
  tensor::DType value_dtype;
  const BlockId* blocks;

  const std::byte* block(int64_t i) const { return pool + blocks[i].value() * block_bytes; }
};

// The query vectors of a sequence that read one KV head: vector i is head i % group of row i / group.
struct QueryTile {
  const float* q;  // [rows][q_stride], head_dim values per head, side by side
  int64_t q_stride;
  float* out;  // laid out like q
  int64_t out_stride;
  int64_t first_position;  // of row 0
  int group;
  int64_t first;  // vectors [first, first + count)
  int count;      // 1..kQueryTile
  int head_dim;
  int stored_dim;  // kv::StoredHeadDim of it, up to kMaxHeadDim: what is behind head_dim is zero
  float scale;
  int64_t window;  // 0: none
  // [group], or null: a score of each head that joins its softmax, without a key or a value.
  const float* sinks;
};

// True if keys or values may be kept as `dtype`.
constexpr bool AttentionTakes(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 || dtype == tensor::DType::kBF16 || dtype == tensor::DType::kI8 ||
         dtype == tensor::DType::kI4;
}

// How attention multiplies with keys or values of a dtype that AttentionTakes.
enum class KvProduct {
  kFloat,    // f32
  kBF16,     // bf16_attention.h
  kInteger,  // integer_attention-inl.h
};
constexpr KvProduct KvProductOf(tensor::DType dtype) {
  if (dtype == tensor::DType::kBF16) return KvProduct::kBF16;
  return dtype == tensor::DType::kF32 ? KvProduct::kFloat : KvProduct::kInteger;
}
// The class of its rounding: "" for float32, whose own class (FloatNumerics) every fingerprint has, so that
// this one need not say whether a multiply-add rounds once.
std::string_view Numerics(KvProduct product);

struct IntegerKernel;
struct I8Tiles;
struct TileProduct;
struct BF16Attention;
// BF16Way is how KV in bfloat16 is multiplied.
struct BF16Way {
  int rows;               // query vectors that go through a tile together, at most
  int64_t x_block_bytes;  // of a block of 32 numbers of a query, or of probabilities, rounded
  void (*round)(const float* x, int64_t cols, std::byte* row);
  const BF16Attention* passes;
};
// AttentionTiles has what an instruction set multiplies KV with that is not float32.
struct AttentionTiles {
  const IntegerKernel* integer_rows;  // quantizes queries
  const I8Tiles* integers;
  // For kManyVectors or more, if keys and values are integers; or null.
  void (*many_integers)(const TileProduct& product);
  BF16Way bf16;
  BF16Way bf16_many;  // for kManyVectors or more, if keys and values are in bfloat16
};
// Returns those of an instruction set, for attention of the same one.
AttentionTiles AttentionTilesFor(Isa isa);

using Attend = void (*)(const QueryTile& queries, const PagedHead& kv, const AttentionTiles& tiles);
Attend AttendFor(Isa isa);

}  // namespace baton::kernels::cpu
