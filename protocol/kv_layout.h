// KvLayout: how the KV of kBlockTokens tokens lies in the bytes of one block. Blocks are opaque everywhere
// else: only this header, the codecs (kv_codec.h) and the kernels know what is inside, so that a packed
// precision is a new dtype and a codec, and nothing more.
//
//   block  := layer[layers]
//   layer  := keys[kv_heads] values[kv_heads]
//   keys   := key[head_dim][kBlockTokens]   scale[kBlockTokens]
//   values := value[kBlockTokens][head_dim] scale[kBlockTokens]
//
// Scales (float32, one per token and head) are there for scaled dtypes only: the number is value x scale.
// Keys are stored with tokens innermost, values with head_dim innermost: both are what a vector unit reads in
// order. Of i4, codes lie two in a byte, both of one token (i4_vector.h), in the order of integer products:
//
//   keys   := [head_dim / 8][kBlockTokens][4], byte j: dimension j of the 8 in its low half, j + 4 in the
//   high values := [kBlockTokens / 4][head_dim / 2][4 tokens], byte j: dimension j, and j + head_dim / 2
//
// A head is kept with StoredHeadDim of its values: zeros follow it up to a multiple of 8.
//
// A layer of a block is contiguous, so that it can leave while the next layer is computed. Layers may
// differ in precision, and so in size. Plain data, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/tensor/dtype.h"

namespace baton::kv {

// Values that KV has for a head of `head_dim`: a multiple of 8, which is what vectors and packed codes need.
constexpr int StoredHeadDim(int head_dim) { return (head_dim + 7) / 8 * 8; }

// Where one layer's KV lies in a block, and at which precision. Offsets and sizes are in bytes.
struct KvLayer {
  int kv_heads = 0;
  int head_dim = 0;  // stored
  tensor::DType key_dtype = tensor::DType::kF32;
  tensor::DType value_dtype = tensor::DType::kF32;
  int64_t offset = 0;  // within a block

  int64_t key_head_bytes() const { return HeadBytes(key_dtype); }
  int64_t value_head_bytes() const { return HeadBytes(value_dtype); }
  int64_t key_bytes() const { return kv_heads * key_head_bytes(); }
  int64_t value_bytes() const { return kv_heads * value_head_bytes(); }
  int64_t bytes() const { return key_bytes() + value_bytes(); }
  // Within a block.
  int64_t key_offset(int head) const { return offset + head * key_head_bytes(); }
  int64_t value_offset(int head) const { return offset + key_bytes() + head * value_head_bytes(); }

 private:
  int64_t HeadBytes(tensor::DType dtype) const {
    const int64_t scales = tensor::IsScaled(dtype) ? kBlockTokens * int64_t{sizeof(float)} : 0;
    return int64_t{head_dim} * kBlockTokens * tensor::BitsOf(dtype) / 8 + scales;
  }
};

// The precision of a layer that is kept otherwise than the rest.
struct KvException {
  int layer = 0;
  tensor::DType key_dtype = tensor::DType::kF32;
  tensor::DType value_dtype = tensor::DType::kF32;

  friend bool operator==(const KvException&, const KvException&) = default;
};

struct KvLayout {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;  // stored
  tensor::DType key_dtype = tensor::DType::kF32;
  tensor::DType value_dtype = tensor::DType::kF32;
  std::vector<KvException> exceptions = {};  // by layer, ascending

  // One layer, in time proportional to the exceptions; KvStore has the table of all.
  KvLayer layer(int index) const {
    KvLayer usual{kv_heads, head_dim, key_dtype, value_dtype, 0};
    KvLayer found = usual;
    found.offset = index * usual.bytes();
    for (const KvException& exception : exceptions) {
      if (exception.layer > index) break;
      const KvLayer own{kv_heads, head_dim, exception.key_dtype, exception.value_dtype, found.offset};
      if (exception.layer == index) return own;
      found.offset += own.bytes() - usual.bytes();
    }
    return found;
  }
  // Bytes of layers [first, first + count), which lie side by side.
  int64_t layers_bytes(int first, int count) const {
    return layer(first + count).offset - layer(first).offset;
  }
  int64_t block_bytes() const { return layers_bytes(0, layers); }

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

}  // namespace baton::kv
