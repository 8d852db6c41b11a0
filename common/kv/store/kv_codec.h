// KvCodec: how the numbers of a key or a value are kept at one precision, and the one place that switches
// over precisions. A vector (a token's key or value of one head) is stored as a function of itself alone: a
// scaled precision divides it by its own scale, which stands behind the vectors of its block (kv_layout.h).
// Whoever reads it multiplies by the scale after the dot product: a score by the key's scale, a probability
// by the value's.
//
// Backends have loads of their own, by the vector; what they load are the `Stored` of this header. Pure
// functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/tensor/dtype.h"

namespace baton::kv {

// `Stored` is one number in memory, before its scale; rounding is to nearest even.
template <tensor::DType>
struct KvCodec;

template <>
struct KvCodec<tensor::DType::kF32> {
  using Stored = float;
  static constexpr tensor::DType kDType = tensor::DType::kF32;
  static Stored Encode(float value) { return value; }
};
template <>
struct KvCodec<tensor::DType::kBF16> {
  using Stored = uint16_t;
  static constexpr tensor::DType kDType = tensor::DType::kBF16;
  static Stored Encode(float value) { return tensor::ToBF16(value); }
};
template <>
struct KvCodec<tensor::DType::kF8> {
  using Stored = uint8_t;
  static constexpr tensor::DType kDType = tensor::DType::kF8;
  static Stored Encode(float value) { return tensor::ToF8(value); }
};
template <>
struct KvCodec<tensor::DType::kI8> {
  using Stored = int8_t;
  static constexpr tensor::DType kDType = tensor::DType::kI8;
  static Stored Encode(float value) { return static_cast<int8_t>(std::nearbyint(value)); }
};

// visit(codec) with the codec of `dtype`. KV is not kept as float16.
template <class Visit>
void WithKvCodec(tensor::DType dtype, const Visit& visit) {
  switch (dtype) {
    case tensor::DType::kF32:
      return visit(KvCodec<tensor::DType::kF32>());
    case tensor::DType::kBF16:
      return visit(KvCodec<tensor::DType::kBF16>());
    case tensor::DType::kF8:
      return visit(KvCodec<tensor::DType::kF8>());
    case tensor::DType::kI8:
      return visit(KvCodec<tensor::DType::kI8>());
    case tensor::DType::kF16:
      break;
  }
  BATON_CHECK(false) << " KV is not kept as " << tensor::Name(dtype);
}

// Offset of the scales from the start of a head's keys or values, which they follow.
constexpr int64_t ScalesAt(tensor::DType dtype, int head_dim) {
  return int64_t{head_dim} * kBlockTokens * tensor::SizeOf(dtype);
}

// The scale of token `token` of a block; 1 where there are none. `data`: a head's keys or values.
inline float ScaleOf(tensor::DType dtype, int head_dim, const std::byte* data, int64_t token) {
  return tensor::IsScaled(dtype)
             ? tensor::ValueAt(data + ScalesAt(dtype, head_dim), tensor::DType::kF32, token)
             : 1;
}

namespace internal {

// Number i of `vector` goes to place first + i * step.
inline void StoreVector(tensor::DType dtype, const float* vector, int head_dim, int64_t token, int64_t first,
                        int64_t step, std::byte* data) {
  WithKvCodec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    auto* to = reinterpret_cast<typename Codec::Stored*>(data) + first;
    if constexpr (tensor::IsScaled(Codec::kDType)) {
      // The largest magnitude becomes the dtype's largest number.
      float largest = 0;
      for (int i = 0; i < head_dim; ++i) largest = std::max(largest, std::abs(vector[i]));
      const float scale = largest / tensor::LargestOf(Codec::kDType);
      const float inverse = scale > 0 ? 1 / scale : 0;
      for (int i = 0; i < head_dim; ++i) to[i * step] = Codec::Encode(vector[i] * inverse);
      std::memcpy(data + ScalesAt(Codec::kDType, head_dim) + token * int64_t{sizeof scale}, &scale,
                  sizeof scale);
    } else {
      for (int i = 0; i < head_dim; ++i) to[i * step] = Codec::Encode(vector[i]);
    }
  });
}

}  // namespace internal

// Stores a head's key [head_dim] of token `token` (0 .. kBlockTokens - 1) of a block into the head's keys.
inline void StoreKey(tensor::DType dtype, const float* key, int head_dim, int64_t token, std::byte* keys) {
  internal::StoreVector(dtype, key, head_dim, token, token, kBlockTokens, keys);
}
// The same of a value.
inline void StoreValue(tensor::DType dtype, const float* value, int head_dim, int64_t token,
                       std::byte* values) {
  internal::StoreVector(dtype, value, head_dim, token, token * head_dim, 1, values);
}

}  // namespace baton::kv
