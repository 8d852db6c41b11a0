// Bringing blocks of paged KV into shared memory in the form that the tensor cores take, whatever precision
// they are kept in. A block's keys of one head are [head_dim][16 tokens], its values [16 tokens][head_dim],
// scaled dtypes with a scale per token behind them (kv_layout.h). In shared memory both are 16-bit, and their
// 16-byte chunks are swizzled so that the eight rows of an ldmatrix lie in different banks:
//   keys    row d (2 chunks):            chunk c stands at c ^ (d / 4 % 2)
//   values  row token (head_dim / 8):    chunk c stands at c ^ (token % 8)
// Values in the tensor cores' type are copied asynchronously; all others are converted on the way.
#pragma once

#include "engine/kernels/cuda/device_math.cuh"
#include "engine/kernels/cuda/kv_bytes.cuh"
#include "engine/kernels/cuda/launch.h"

namespace baton::kernels::cuda {

// Eight consecutive values of a KV dtype, the first at `data`.
__device__ inline void LoadKv8(const std::byte* data, DType dtype, float (&out)[8]) {
  switch (dtype) {
    case DType::kF32: {
      const auto* quads = reinterpret_cast<const float4*>(data);
      const float4 a = quads[0], b = quads[1];
      out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
      out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
      return;
    }
    case DType::kBF16: {
      const uint4 raw = *reinterpret_cast<const uint4*>(data);
      const auto* values = reinterpret_cast<const __nv_bfloat16*>(&raw);
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = __bfloat162float(values[i]);
      return;
    }
    case DType::kF16: {
      const uint4 raw = *reinterpret_cast<const uint4*>(data);
      const auto* values = reinterpret_cast<const __half*>(&raw);
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = __half2float(values[i]);
      return;
    }
    case DType::kF8: {
      const uint2 raw = *reinterpret_cast<const uint2*>(data);
      const auto* values = reinterpret_cast<const __nv_fp8_storage_t*>(&raw);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        out[i] = __half2float(__half(__nv_cvt_fp8_to_halfraw(values[i], __NV_E4M3)));
      return;
    }
    case DType::kI4:  // refused by CudaKernels::CheckLayout
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = 0;
      return;
    case DType::kI8: {
      const uint2 raw = *reinterpret_cast<const uint2*>(data);
      const auto* values = reinterpret_cast<const int8_t*>(&raw);
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = static_cast<float>(values[i]);
      return;
    }
  }
}

template <typename T>
__device__ uint4 PackChunk(const float (&values)[8]) {
  return {Pack2<T>(values[0], values[1]), Pack2<T>(values[2], values[3]), Pack2<T>(values[4], values[5]),
          Pack2<T>(values[6], values[7])};
}

// Chunk i of a block's keys, tokens 8 (i % 2) and on of row d = i / 2, as numbers.
template <int D>
__device__ void LoadKeyChunk(float (&values)[8], const std::byte* keys, DType dtype, int i) {
  LoadKv8(keys + i * 8 * tensor::SizeOf(dtype), dtype, values);
  if (tensor::IsScaled(dtype)) {
    const auto* scales = reinterpret_cast<const float*>(keys + D * kBlockTokens * tensor::SizeOf(dtype));
#pragma unroll
    for (int t = 0; t < 8; ++t) values[t] *= scales[i % 2 * 8 + t];
  }
}

// Chunk i of a block's values, of token i / (D / 8), as numbers.
template <int D>
__device__ void LoadValueChunk(float (&values)[8], const std::byte* values_of_block, DType dtype, int i) {
  LoadKv8(values_of_block + i * 8 * tensor::SizeOf(dtype), dtype, values);
  if (tensor::IsScaled(dtype)) {
    const auto* scales =
        reinterpret_cast<const float*>(values_of_block + D * kBlockTokens * tensor::SizeOf(dtype));
#pragma unroll
    for (int d = 0; d < 8; ++d) values[d] *= scales[i / (D / 8)];
  }
}

// Keys of one block and head into `shared` [D][16], by `threads` threads of which this is number `thread`.
template <typename T, int D>
__device__ void LoadKeys(T* shared, const std::byte* keys, DType dtype, int thread, int threads) {
  for (int i = thread; i < 2 * D; i += threads) {
    const int d = i / 2, chunk = i % 2;
    T* to = shared + d * kBlockTokens + (chunk ^ ((d / 4) & 1)) * 8;
    if (dtype == kNative<T>) {
      CopyAsync16(to, keys + i * 16, true);
    } else {
      float values[8];
      LoadKeyChunk<D>(values, keys, dtype, i);
      StoreShared(to, PackChunk<T>(values));
    }
  }
}

// Values of one block and head into `shared` [16][D]. Only the first `tokens` are there: the rest becomes
// zero, since a probability of zero times what was never written need not be zero. With none, nothing is
// read.
template <typename T, int D>
__device__ void LoadValues(T* shared, const std::byte* values_of_block, DType dtype, int tokens, int thread,
                           int threads) {
  constexpr int kChunks = D / 8;
  for (int i = thread; i < kBlockTokens * kChunks; i += threads) {
    const int token = i / kChunks, chunk = i % kChunks;
    T* to = shared + token * D + (chunk ^ (token & 7)) * 8;
    const bool there = token < tokens;
    if (dtype == kNative<T>) {
      CopyAsync16(to, values_of_block + (there ? i * 16 : 0), there);
    } else if (there) {
      float values[8];
      LoadValueChunk<D>(values, values_of_block, dtype, i);
      StoreShared(to, PackChunk<T>(values));
    } else {
      StoreShared(to, make_uint4(0, 0, 0, 0));
    }
  }
}

// The B fragments of 16 rows d from 16 kk on and a block's 16 tokens: r[0], r[1] for tokens 0 to 7, r[2],
// r[3] for 8 to 15.
__device__ inline void KeyFragments(uint32_t (&r)[4], const void* keys, int kk, int lane) {
  const int d = kk * 16 + (lane / 8 % 2) * 8 + lane % 8;
  const int chunk = (lane / 16) ^ ((d / 4) & 1);
  LoadMatricesTransposed(r, static_cast<const uint4*>(keys) + d * 2 + chunk);
}

// The B fragments of a block's 16 tokens and 16 columns d from 16 jj on: r[0], r[1] for the first 8 columns,
// r[2], r[3] for the others.
// kOfBytes: the tokens in the order of keys of 8 bits (kv_bytes.cuh).
template <int D, bool kOfBytes = false>
__device__ void ValueFragments(uint32_t (&r)[4], const void* values, int jj, int lane) {
  const int k = (lane / 8 % 2) * 8 + lane % 8;
  const int token = kOfBytes ? TokenAt(k) : k;
  const int chunk = (2 * jj + lane / 16) ^ (token & 7);
  LoadMatricesTransposed(r, static_cast<const uint4*>(values) + token * (D / 8) + chunk);
}

}  // namespace baton::kernels::cuda
