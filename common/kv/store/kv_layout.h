// KvLayout: how the KV of kBlockTokens tokens lies in the bytes of one block. Blocks are opaque everywhere
// else: only this header and the kernels know what is inside, so that a packed precision is a new dtype here
// and nowhere more.
//
//   block  := layer[layers]
//   layer  := keys[kv_heads] values[kv_heads]
//   keys   := key[head_dim][kBlockTokens]   scale[kBlockTokens]
//   values := value[kBlockTokens][head_dim] scale[kBlockTokens]
//
// Scales (float32, one per token and head) are there for scaled dtypes only: the number is value x scale.
// Keys are stored with tokens innermost, values with head_dim innermost: both are what a vector unit reads in
// order. A layer of a block is contiguous, so that it can leave while the next layer is computed.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/ids.h"
#include "common/tensor/dtype.h"

namespace baton::kv {

struct KvLayout {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  tensor::DType key_dtype = tensor::DType::kF32;
  tensor::DType value_dtype = tensor::DType::kF32;

  // All in bytes.
  int64_t key_head_bytes() const { return HeadBytes(key_dtype); }
  int64_t value_head_bytes() const { return HeadBytes(value_dtype); }
  int64_t key_bytes() const { return kv_heads * key_head_bytes(); }
  int64_t value_bytes() const { return kv_heads * value_head_bytes(); }
  int64_t layer_bytes() const { return key_bytes() + value_bytes(); }
  int64_t block_bytes() const { return layers * layer_bytes(); }
  // Offsets within a block.
  int64_t key_offset(int layer, int head) const { return layer * layer_bytes() + head * key_head_bytes(); }
  int64_t value_offset(int layer, int head) const {
    return layer * layer_bytes() + key_bytes() + head * value_head_bytes();
  }

  // Offset of the scales from the start of a head's keys or values.
  int64_t scales_at(tensor::DType dtype) const {
    return int64_t{head_dim} * kBlockTokens * tensor::SizeOf(dtype);
  }

  friend bool operator==(const KvLayout&, const KvLayout&) = default;

 private:
  int64_t HeadBytes(tensor::DType dtype) const {
    const int64_t scales = tensor::IsScaled(dtype) ? kBlockTokens * int64_t{sizeof(float)} : 0;
    return scales_at(dtype) + scales;
  }
};

}  // namespace baton::kv
