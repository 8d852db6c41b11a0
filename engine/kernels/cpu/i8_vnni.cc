// The tiles of int8 products with AVX-512 VNNI: VPDPBUSD adds four products of an unsigned and a signed byte
// to each of 16 sums, without saturation. The instruction set is an attribute of each function here: the rest
// of the binary runs without it.
#include "engine/kernels/cpu/i8_tiles.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define BATON_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

namespace baton::kernels::cpu {
namespace {

constexpr int kVectors = kPanelRows / 16;
template <int kRows>
BATON_VNNI void Tile(const I8Tile& tile) {
  // One row has too few sums to hide an instruction's latency: even and odd steps go into sums of their own.
  constexpr int kPhases = kRows == 1 ? 2 : 1;
  __m512i sum[kPhases][kRows][kVectors];
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      sum[0][r][v] = _mm512_loadu_si512(tile.sums + r * kPanelRows + v * 16);
      if constexpr (kPhases == 2) sum[1][r][v] = _mm512_setzero_si512();
    }
  }
  const std::byte* panel = tile.panel;
  const std::byte* x = tile.x;
  const int64_t x_stride = tile.x_stride;
  int64_t left = tile.steps;
  const std::byte* ahead = tile.ahead;
  const int lines = tile.lines;
  for (; left >= kPhases; left -= kPhases) {
    BATON_UNROLLED
    for (int p = 0; p < kPhases; ++p) {
      for (int line = 0; line < lines; ++line) _mm_prefetch(ahead + line * kI8LineBytes, _MM_HINT_T1);
      ahead += lines * kI8LineBytes;
      __m512i w[kVectors];
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(panel + v * 64);
      BATON_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        std::memcpy(&four, x + r * x_stride, sizeof four);
        const __m512i value = _mm512_set1_epi32(four);
        BATON_UNROLLED
        for (int v = 0; v < kVectors; ++v) sum[p][r][v] = _mm512_dpbusd_epi32(sum[p][r][v], w[v], value);
      }
      panel += kI8StepBytes;
      x += kI8Step;
    }
  }
  if constexpr (kPhases == 2) {
    if (left > 0) {
      int32_t four;
      std::memcpy(&four, x, sizeof four);
      const __m512i value = _mm512_set1_epi32(four);
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        sum[0][0][v] = _mm512_dpbusd_epi32(sum[0][0][v], _mm512_loadu_si512(panel + v * 64), value);
      }
    }
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) sum[0][0][v] = _mm512_add_epi32(sum[0][0][v], sum[1][0][v]);
  }
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_si512(tile.sums + r * kPanelRows + v * 16, sum[0][r][v]);
    }
  }
}

// One row of x against kI8Abreast panels. Each has a sum for even steps and one for odd ones.
constexpr int kI8Abreast = 2;

BATON_VNNI void OneRow(const I8Tile& tile, int64_t panel_bytes) {
  constexpr int64_t kAhead = 2048;  // bytes of a panel, fetched before they are read
  __m512i sum[2][kI8Abreast][kVectors];
  BATON_UNROLLED
  for (int p = 0; p < kI8Abreast; ++p) {
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      sum[0][p][v] = _mm512_loadu_si512(tile.sums + p * kPanelRows + v * 16);
      sum[1][p][v] = _mm512_setzero_si512();
    }
  }
  const std::byte* panel = tile.panel;
  const std::byte* x = tile.x;
  int64_t left = tile.steps;
  for (; left >= 2; left -= 2) {
    BATON_UNROLLED
    for (int phase = 0; phase < 2; ++phase) {
      int32_t four;
      std::memcpy(&four, x, sizeof four);
      const __m512i value = _mm512_set1_epi32(four);
      BATON_UNROLLED
      for (int p = 0; p < kI8Abreast; ++p) {
        BATON_UNROLLED
        for (int v = 0; v < kVectors; ++v) {
          const std::byte* at = panel + p * panel_bytes + v * kI8LineBytes;
          _mm_prefetch(at + kAhead, _MM_HINT_T0);
          sum[phase][p][v] = _mm512_dpbusd_epi32(sum[phase][p][v], _mm512_loadu_si512(at), value);
        }
      }
      panel += kI8StepBytes;
      x += kI8Step;
    }
  }
  int32_t four = 0;
  if (left > 0) std::memcpy(&four, x, sizeof four);
  const __m512i value = _mm512_set1_epi32(four);
  BATON_UNROLLED
  for (int p = 0; p < kI8Abreast; ++p) {
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      __m512i both = _mm512_add_epi32(sum[0][p][v], sum[1][p][v]);
      if (left > 0) {
        both =
            _mm512_dpbusd_epi32(both, _mm512_loadu_si512(panel + p * panel_bytes + v * kI8LineBytes), value);
      }
      _mm512_storeu_si512(tile.sums + p * kPanelRows + v * 16, both);
    }
  }
}

}  // namespace

const I8Tiles kI8VnniTiles = {
    .rows = 6,
    .step_bytes = kI8Step,
    .by_rows = {&Tile<1>, &Tile<2>, &Tile<3>, &Tile<4>, &Tile<5>, &Tile<6>},
    .abreast = kI8Abreast,
    .one_row = &OneRow,
};

}  // namespace baton::kernels::cpu

#endif
