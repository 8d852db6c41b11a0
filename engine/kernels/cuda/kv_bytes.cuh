// KV of 8 bits (f8, i8) in shared memory as it lies in the pool, copied asynchronously, and the tensor cores'
// fragments made of it. A value of 8 bits is exact in 16, so nothing is rounded here: scales, one per token,
// are the caller's to apply, to scores and to probabilities.
//
// ldmatrix moves pairs of bytes, so a register has two neighbours of either of two rows, and a fragment takes
// one of them: tokens come in the order 0, 2, 4, ... 14, 1, 3, ... 15 for keys (TokenAt), and columns d of a
// product with values likewise within 16.
#pragma once

#include <bit>

#include "engine/kernels/cuda/device_math.cuh"
#include "engine/kernels/cuda/launch.h"

namespace baton::kernels::cuda {

// The keys, [D][16 tokens], or the values, [16 tokens][D], of one block and head. Keys stand as they are.
// Values stand in lines of 128 bytes, whose chunks of 16 are swizzled: chunk c of line l at c ^ (l or l / 2)
// % 8.
template <int D>
struct alignas(16) ByteTile {
  std::byte bytes[kBlockTokens * D];
  float scales[kBlockTokens];
};

// The token at place k of the order that keys of 8 bits come in.
__device__ constexpr int TokenAt(int k) { return k % 8 * 2 + k / 8; }

template <int D>
__device__ int ValueChunkAt(int token, int chunk) {
  constexpr int kTokens = 128 / D;  // in a line
  const int line = token / kTokens, at = token % kTokens * (D / 16) + chunk;
  return line * 8 + (at ^ (token / 2 & 7));
}

// By `threads` threads of which this is number `thread`.
template <int D>
__device__ void LoadKeyBytes(ByteTile<D>& tile, const std::byte* keys, int thread, int threads) {
  for (int i = thread; i < D + kBlockTokens / 4; i += threads) {
    CopyAsync16(reinterpret_cast<std::byte*>(&tile) + i * 16, keys + i * 16, true);
  }
}

// Only the first `tokens` are there: values of the rest become zero, and scales are any. With none, nothing
// is read but what lies at `values`.
template <int D>
__device__ void LoadValueBytes(ByteTile<D>& tile, const std::byte* values, int tokens, int thread,
                               int threads) {
  constexpr int kChunks = D / 16;
  for (int i = thread; i < D; i += threads) {
    const bool there = i / kChunks < tokens;
    CopyAsync16(tile.bytes + ValueChunkAt<D>(i / kChunks, i % kChunks) * 16, values + (there ? i * 16 : 0),
                there);
  }
  for (int i = thread; i < kBlockTokens / 4; i += threads) {
    CopyAsync16(tile.scales + i * 4, values + (tokens > 0 ? kBlockTokens * D + i * 16 : 0), tokens > 0);
  }
}

// Two bytes of a register as values of T, times `low` and `high`.
template <typename T, int kFirst, int kSecond>
__device__ uint32_t WidenBytes(uint32_t bytes, DType dtype, float low = 1, float high = 1) {
  if (dtype == DType::kF8) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(PickBytes<kFirst, kSecond>(bytes));
    const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
    const float2 values = __half22float2(__half2(raw));
    return Pack2<T>(values.x * low, values.y * high);
  }
  // An unsigned byte in the last bits of 2^23 adds its value to 2^23; one subtraction removes that and the
  // sign's offset.
  const uint32_t above = bytes ^ 0x80808080u;
  const auto value = [&](int byte) {
    return std::bit_cast<float>(0x4B000000u | (above >> (8 * byte) & 0xFFu)) - 8388736.0f;
  };
  return Pack2<T>(value(kFirst) * low, value(kSecond) * high);
}

// The B fragments of 32 rows d from 32 pair on and a block's tokens: r[2 h], r[2 h + 1] are of rows 16 h and
// on; even bytes are places 0 to 7 of the tokens' order, odd ones 8 to 15.
template <int D>
__device__ void KeyByteFragments(uint32_t (&r)[4], const ByteTile<D>& tile, int pair, int lane) {
  LoadMatricesTransposed(r, tile.bytes + (pair * 32 + lane) * 16);
}

// The B fragments of a block's tokens, in the order of keys of 8 bits or in their own, and 32 columns d from
// 32 pair on: r[2 h], r[2 h + 1] are of columns 16 h and on; even bytes are every second of them from the
// first on, odd ones the others.
template <int D, bool kOfBytes>
__device__ void ValueByteFragments(uint32_t (&r)[4], const ByteTile<D>& tile, int pair, int lane) {
  const int k = lane / 8 % 2 * 8 + lane % 8;
  const int token = kOfBytes ? TokenAt(k) : k;
  LoadMatricesTransposed(r, tile.bytes + ValueChunkAt<D>(token, pair * 2 + lane / 16) * 16);
}

}  // namespace baton::kernels::cuda
