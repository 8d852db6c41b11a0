// Arguments of kernels::Kernels in the form that launchers take. Pure functions, for callers of launchers.
#pragma once

#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/plan.h"

namespace baton::kernels::cuda {

// `words`: the table's, where the kernels read them.
inline StepView ViewOf(const StepTable& table, const int32_t* words) {
  return {.tokens = words,
          .positions = words + table.positions_at(),
          .row_blocks = words + table.row_blocks_at(),
          .decode_rows = words + table.decode_rows_at(),
          .tiles = reinterpret_cast<const PrefillTile*>(words + table.tiles_at()),
          .blocks = words + table.blocks_at(),
          .kept = words + table.kept_at(),
          .rows = static_cast<int>(table.rows()),
          .decode_row_count = static_cast<int>(table.decode_rows()),
          .tile_count = static_cast<int>(table.tiles()),
          .split_bucket = SplitBucket(table.longest_decode())};
}

inline KvView ViewOf(const kv::KvStore& store, int layer) {
  const kv::KvLayer& at = store.layer(layer);
  // The pool is one piece of memory; block 0 is its start. RotateAndStore alone writes through this.
  return {.pool = const_cast<std::byte*>(store.block(BlockId(0))),
          .block_bytes = store.layout().block_bytes(),
          .keys_at = at.key_offset(0),
          .values_at = at.value_offset(0),
          .key_head_bytes = at.key_head_bytes(),
          .value_head_bytes = at.value_head_bytes(),
          .key_dtype = at.key_dtype,
          .value_dtype = at.value_dtype};
}

inline HeadShape ShapeOf(const AttentionShape& shape) {
  return {.heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .scale = shape.scale,
          .window = shape.window};
}

}  // namespace baton::kernels::cuda
