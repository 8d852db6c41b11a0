// KvCodec: how the numbers of a key or a value are kept at one precision, and the one place that switches
// over precisions. A vector (a token's key or value of one head) is stored as a function of itself alone: a
// scaled precision divides it by its own scale, which stands behind the vectors of its block (kv_layout.h).
// Whoever reads it multiplies by the scale after the dot product: a score by the key's scale, a probability
// by the value's. Vectors of i4 are rotated first (i4_vector.h), and so are the queries and outputs that meet
// them.
//
// A vector of a scaled precision that has an infinity or a NaN reads back as NaNs, and one whose largest
// magnitude is below 2^-100 as zeros.
//
// Backends have loads of their own, by the vector; what they load are the `Stored` of this header. Pure
// functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "engine/kv/store/i4_vector.h"

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

// visit(codec) with the codec of `dtype`. KV is not kept as float16; i4 has no numbers to store one by one.
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
    case tensor::DType::kI4:
      break;
  }
  BATON_CHECK(false) << " KV is not kept as " << tensor::Name(dtype);
}

// Offset of the scales from the start of a head's keys or values, which they follow.
constexpr int64_t ScalesAt(tensor::DType dtype, int head_dim) {
  return int64_t{head_dim} * kBlockTokens * tensor::BitsOf(dtype) / 8;
}

// The scale of token `token` of a block; 1 where there are none. `data`: a head's keys or values.
inline float ScaleOf(tensor::DType dtype, int head_dim, const std::byte* data, int64_t token) {
  return tensor::IsScaled(dtype)
             ? tensor::ValueAt(data + ScalesAt(dtype, head_dim), tensor::DType::kF32, token)
             : 1;
}

namespace internal {

inline void StoreScale(tensor::DType dtype, int head_dim, int64_t token, float scale, std::byte* data) {
  std::memcpy(data + ScalesAt(dtype, head_dim) + token * int64_t{sizeof scale}, &scale, sizeof scale);
}

// The largest magnitude in a vector: infinity or NaN if one of either is in it.
inline float LargestIn(const float* vector, int head_dim) {
  // As integers, bits of magnitudes have the order of the magnitudes, with infinity and NaN at the end.
  int32_t largest = 0;
  for (int i = 0; i < head_dim; ++i)
    largest = std::max(largest, std::bit_cast<int32_t>(vector[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(largest);
}

// Number i of `vector` goes to place first + i * step.
inline void StoreVector(tensor::DType dtype, const float* vector, int head_dim, int64_t token, int64_t first,
                        int64_t step, std::byte* data) {
  WithKvCodec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    auto* to = reinterpret_cast<typename Codec::Stored*>(data) + first;
    if constexpr (tensor::IsScaled(Codec::kDType)) {
      // The largest magnitude becomes the dtype's largest number.
      const float largest = LargestIn(vector, head_dim);
      const bool broken = !std::isfinite(largest), zero = largest < kTiny;
      const float scale = broken ? std::numeric_limits<float>::quiet_NaN()
                          : zero ? 0
                                 : largest / tensor::LargestOf(Codec::kDType);
      const float inverse = 1 / scale;
      for (int i = 0; i < head_dim; ++i)
        to[i * step] = Codec::Encode(broken || zero ? 0 : vector[i] * inverse);
      StoreScale(Codec::kDType, head_dim, token, scale, data);
    } else {
      for (int i = 0; i < head_dim; ++i) to[i * step] = Codec::Encode(vector[i]);
    }
  });
}

// One of i4: place(d) is where the code of its number d goes.
template <class Place>
void StoreI4(const float* vector, int head_dim, int64_t token, std::byte* data, const Place& place) {
  I4Vector codes;
  const float scale = EncodeI4(vector, head_dim, codes);
  for (int d = 0; d < head_dim; ++d) PutCode(data, place(d), codes[static_cast<size_t>(d)]);
  StoreScale(tensor::DType::kI4, head_dim, token, scale, data);
}

template <class Place>
void LoadI4(const std::byte* data, int head_dim, float scale, const Place& place, float* vector) {
  for (int d = 0; d < head_dim; ++d)
    vector[d] = scale * static_cast<float>(kI4Levels[static_cast<size_t>(CodeAt(data, place(d)))]);
  Rotate(vector, head_dim);
}

}  // namespace internal

// Stores a head's key [head_dim] of token `token` (0 .. kBlockTokens - 1) of a block into the head's keys.
inline void StoreKey(tensor::DType dtype, const float* key, int head_dim, int64_t token, std::byte* keys) {
  if (dtype == tensor::DType::kI4) {
    return internal::StoreI4(key, head_dim, token, keys, [&](int d) { return I4KeyPlace(d, token); });
  }
  internal::StoreVector(dtype, key, head_dim, token, token, kBlockTokens, keys);
}
// The same of a value.
inline void StoreValue(tensor::DType dtype, const float* value, int head_dim, int64_t token,
                       std::byte* values) {
  if (dtype == tensor::DType::kI4) {
    return internal::StoreI4(value, head_dim, token, values,
                             [&](int d) { return I4ValuePlace(d, head_dim, token); });
  }
  internal::StoreVector(dtype, value, head_dim, token, token * head_dim, 1, values);
}

// A key as it reads back, [head_dim]: the slow, obvious twin of what kernels do by the block.
inline void LoadKey(tensor::DType dtype, const std::byte* keys, int head_dim, int64_t token, float* key) {
  const float scale = ScaleOf(dtype, head_dim, keys, token);
  if (dtype == tensor::DType::kI4) {
    return internal::LoadI4(
        keys, head_dim, scale, [&](int d) { return I4KeyPlace(d, token); }, key);
  }
  for (int d = 0; d < head_dim; ++d) key[d] = scale * tensor::ValueAt(keys, dtype, d * kBlockTokens + token);
}
// The same of a value.
inline void LoadValue(tensor::DType dtype, const std::byte* values, int head_dim, int64_t token,
                      float* value) {
  const float scale = ScaleOf(dtype, head_dim, values, token);
  if (dtype == tensor::DType::kI4) {
    return internal::LoadI4(
        values, head_dim, scale, [&](int d) { return I4ValuePlace(d, head_dim, token); }, value);
  }
  for (int d = 0; d < head_dim; ++d) value[d] = scale * tensor::ValueAt(values, dtype, token * head_dim + d);
}

}  // namespace baton::kv
