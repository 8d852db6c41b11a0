// Shared by the files with AVX512_BF16: bf16_dot.cc and bf16_attention_dot.cc. The instruction set is an
// attribute of each of their functions: the rest of the binary runs without it.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#define BATON_BF16_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace baton::kernels::cpu {

// A pair of columns of a row of x, as BF16Tiles::round leaves it for these files.
inline constexpr int64_t kBF16DotPairBytes = 2 * sizeof(uint16_t);

// The pair at `x` in each word.
BATON_BF16_DOT inline __m512bh PairAt(const std::byte* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

}  // namespace baton::kernels::cpu

#endif
