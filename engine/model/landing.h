// LandKv: copies KV of tokens from where it was computed to where they stand: values as they are stored, keys
// rotated by the difference of the positions. What is stored there is a function of what was stored here: so
// it has the same bits whether the source was found, fetched or computed a moment ago. docs/chunk-reuse.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/store/kv_store.h"

namespace baton::model {

// Tokens at positions [from_position, from_position + tokens) of the sequence in the blocks `from` go to
// positions [to_position, ...) of the one in `to`. Neither has to be aligned to blocks.
struct Landing {
  std::span<const BlockId> from;
  int64_t from_position = 0;
  std::span<const BlockId> to;
  int64_t to_position = 0;
  int64_t tokens = 0;
};

// In all layers of `store`, which the host may look into and which is not a joint one. A pair of dimensions
// of a key was turned by the angle a that `rope` has for its old position, and is turned on by b - a, where b
// is the table's angle of the new one: so it has, but for rounding, the key that the model stores there, at
// whatever position and scaling. Keys of f8, i8 and i4 are rounded once more, those at an unchanged position
// are copied. No block is in both sequences.
// `others` [layers], or empty: layers whose keys were turned by the table `other`; or without it know no
// position, and are copied.
void LandKv(const kernels::RopeTable& rope, const Landing& landing, kv::KvStore& store,
            const std::vector<bool>& others = {}, const kernels::RopeTable* other = nullptr);

}  // namespace baton::model
