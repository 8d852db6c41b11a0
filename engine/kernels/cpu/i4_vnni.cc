// The tiles of 4-bit products with AVX-512 VNNI. Halves of bytes, 0 to 15, are VPDPBUSD's unsigned side as
// they are; the factor of a group multiplies the sum of its products, and its zero the sum of the integers of
// x. Where many rows share a panel, weights become bytes first, for the tiles of int8. The instruction set is
// an attribute of each function here: the rest of the binary runs without it.
#include "engine/kernels/cpu/i4_tiles.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define BATON_VNNI_4 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

namespace baton::kernels::cpu {
namespace {

constexpr int kI4Vectors = kPanelRows / 16;

BATON_VNNI_4 inline int32_t WordAt(const std::byte* at) {
  int32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The bytes of 16 rows' groups, a word each. (Masks of all lanes, here and below: without one, GCC 12 warns
// of its own uninitialised variable.)
BATON_VNNI_4 inline __m512i GroupsAt(const std::byte* at) {
  return _mm512_maskz_cvtepu8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
BATON_VNNI_4 inline __m512i FactorOf(__m512i group) {
  return _mm512_add_epi32(_mm512_and_si512(group, _mm512_set1_epi32(15)), _mm512_set1_epi32(1));
}

template <int kRows>
BATON_VNNI_4 void Tile4(const I4Tile& tile) {
  const __m512i low_halves = _mm512_set1_epi8(15);
  const std::byte* block = tile.panel;
  const std::byte* x = tile.x;
  const std::byte* x_sums = tile.x_sums;
  const int64_t x_stride = tile.x_stride;
  for (int64_t b = 0; b < tile.blocks; ++b) {
    BATON_UNROLLED
    for (int g = 0; g < kI4Groups; ++g) {
      __m512i sum[kRows][kI4Vectors];
      BATON_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        BATON_UNROLLED
        for (int v = 0; v < kI4Vectors; ++v) sum[r][v] = _mm512_setzero_si512();
      }
      BATON_UNROLLED
      for (int p = 0; p < kI4Pairs; ++p) {
        const std::byte* pair = block + (g * kI4Pairs + p) * kI4PairBytes;
        __m512i w[kI4Vectors];
        BATON_UNROLLED
        for (int v = 0; v < kI4Vectors; ++v) {
          w[v] = _mm512_and_si512(_mm512_loadu_si512(pair + v * 64), low_halves);
        }
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          const __m512i value = _mm512_set1_epi32(WordAt(x + r * x_stride + g * kI4Group + p * 8));
          BATON_UNROLLED
          for (int v = 0; v < kI4Vectors; ++v) sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], value);
        }
        BATON_UNROLLED
        for (int v = 0; v < kI4Vectors; ++v) {
          w[v] = _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(pair + v * 64), 4), low_halves);
        }
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          const __m512i value = _mm512_set1_epi32(WordAt(x + r * x_stride + g * kI4Group + p * 8 + 4));
          BATON_UNROLLED
          for (int v = 0; v < kI4Vectors; ++v) sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], value);
        }
      }
      BATON_UNROLLED
      for (int v = 0; v < kI4Vectors; ++v) {
        const __m512i group = GroupsAt(block + kI4GroupsAt + g * kPanelRows + v * 16);
        const __m512i factor = FactorOf(group), zero = _mm512_maskz_srli_epi32(0xFFFF, group, 4);
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          int32_t* to = tile.sums + r * kPanelRows + v * 16;
          const __m512i of_x = _mm512_set1_epi32(WordAt(x_sums + r * x_stride + g * sizeof(int32_t)));
          const __m512i centred = _mm512_sub_epi32(sum[r][v], _mm512_mullo_epi32(zero, of_x));
          _mm512_storeu_si512(to,
                              _mm512_add_epi32(_mm512_loadu_si512(to), _mm512_mullo_epi32(centred, factor)));
        }
      }
    }
    block += kI4BlockBytes;
    x += kI4Block;
    x_sums += kI4Groups * sizeof(int32_t);
  }
}

// One row of x against kPanels panels, whose sums stay in registers. A group's sum of (q - zero) x has at
// most 16 * 15 * 127 < 2^15: it is a word, which VPDPWSSD multiplies by the factor and adds.
template <int kPanels>
BATON_VNNI_4 void OneRow4(const I4Tile& tile, int64_t panel_bytes) {
  constexpr int64_t kAhead = 2048;  // bytes of a panel, fetched before they are read
  constexpr int64_t kLine = 64, kLinesOfGroup = kI4BlockBytes / kI4Groups / kLine;
  const __m512i low_halves = _mm512_set1_epi8(15);
  const std::byte* block = tile.panel;
  const std::byte* x = tile.x;
  const std::byte* x_sums = tile.x_sums;
  __m512i total[kPanels][kI4Vectors];
  BATON_UNROLLED
  for (int p = 0; p < kPanels; ++p) {
    BATON_UNROLLED
    for (int v = 0; v < kI4Vectors; ++v) total[p][v] = _mm512_setzero_si512();
  }
  for (int64_t b = 0; b < tile.blocks; ++b) {
    BATON_UNROLLED
    for (int g = 0; g < kI4Groups; ++g) {
      __m512i value[2 * kI4Pairs];
      BATON_UNROLLED
      for (int s = 0; s < 2 * kI4Pairs; ++s)
        value[s] = _mm512_set1_epi32(WordAt(x + g * kI4Group + s * kI8Step));
      const __m512i minus = _mm512_set1_epi32(-WordAt(x_sums + g * sizeof(int32_t)) & 0xFFFF);
      BATON_UNROLLED
      for (int p = 0; p < kPanels; ++p) {
        const std::byte* of_panel = block + p * panel_bytes;
        BATON_UNROLLED
        for (int line = 0; line < kLinesOfGroup; ++line) {
          _mm_prefetch(of_panel + kAhead + (g * kLinesOfGroup + line) * kLine, _MM_HINT_T0);
        }
        BATON_UNROLLED
        for (int v = 0; v < kI4Vectors; ++v) {
          const __m512i group = GroupsAt(of_panel + kI4GroupsAt + g * kPanelRows + v * 16);
          __m512i sum = _mm512_madd_epi16(_mm512_maskz_srli_epi32(0xFFFF, group, 4), minus);
          BATON_UNROLLED
          for (int pair = 0; pair < kI4Pairs; ++pair) {
            const __m512i both = _mm512_loadu_si512(of_panel + (g * kI4Pairs + pair) * kI4PairBytes + v * 64);
            sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(both, low_halves), value[2 * pair]);
            sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(_mm512_srli_epi16(both, 4), low_halves),
                                      value[2 * pair + 1]);
          }
          total[p][v] = _mm512_dpwssd_epi32(total[p][v], sum, FactorOf(group));
        }
      }
    }
    block += kI4BlockBytes;
    x += kI4Block;
    x_sums += kI4Groups * sizeof(int32_t);
  }
  BATON_UNROLLED
  for (int p = 0; p < kPanels; ++p) {
    BATON_UNROLLED
    for (int v = 0; v < kI4Vectors; ++v) {
      int32_t* to = tile.sums + p * kPanelRows + v * 16;
      _mm512_storeu_si512(to, _mm512_add_epi32(_mm512_loadu_si512(to), total[p][v]));
    }
  }
}

BATON_VNNI_4 void OneRowOfOne4(const I4Tile& tile) { OneRow4<1>(tile, 0); }

constexpr int kI4Abreast = 4;

}  // namespace

const I4Tiles kI4VnniTiles = {
    .rows = 6,
    .by_rows = {&OneRowOfOne4, &Tile4<2>, &Tile4<3>, &Tile4<4>, &Tile4<5>, &Tile4<6>},
    .abreast = kI4Abreast,
    .one_row = &OneRow4<kI4Abreast>,
};

BATON_VNNI_4 void ExpandI4Vnni(const std::byte* panel, int64_t blocks, std::byte* steps) {
  const __m512i low_halves = _mm512_set1_epi8(15);
  for (int64_t b = 0; b < blocks; ++b) {
    BATON_UNROLLED
    for (int g = 0; g < kI4Groups; ++g) {
      __m512i factor[kI4Vectors], base[kI4Vectors];
      BATON_UNROLLED
      for (int v = 0; v < kI4Vectors; ++v) {
        const __m512i group = GroupsAt(panel + kI4GroupsAt + g * kPanelRows + v * 16);
        const __m512i times = FactorOf(group), zero = _mm512_maskz_srli_epi32(0xFFFF, group, 4);
        // 128 - factor * zero, in each byte of a word; it may wrap, and so does the sum with it.
        const __m512i from = _mm512_sub_epi32(_mm512_set1_epi32(kI8Offset), _mm512_mullo_epi32(times, zero));
        base[v] = _mm512_mullo_epi32(_mm512_and_si512(from, _mm512_set1_epi32(0xFF)),
                                     _mm512_set1_epi32(0x01010101));
        factor[v] = _mm512_or_si512(times, _mm512_maskz_slli_epi32(0xFFFF, times, 16));
      }
      BATON_UNROLLED
      for (int p = 0; p < kI4Pairs; ++p) {
        BATON_UNROLLED
        for (int v = 0; v < kI4Vectors; ++v) {
          const __m512i both = _mm512_loadu_si512(panel + (g * kI4Pairs + p) * kI4PairBytes + v * 64);
          const __m512i low = _mm512_and_si512(both, low_halves),
                        high = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_halves);
          // Two bytes of up to 15 times up to 16 in one multiplication: the lower one does not carry.
          std::byte* to = steps + 2 * (g * kI4Pairs + p) * kI8StepBytes + v * 64;
          _mm512_storeu_si512(to, _mm512_add_epi8(_mm512_mullo_epi16(low, factor[v]), base[v]));
          _mm512_storeu_si512(to + kI8StepBytes,
                              _mm512_add_epi8(_mm512_mullo_epi16(high, factor[v]), base[v]));
        }
      }
    }
    panel += kI4BlockBytes;
    steps += 2 * kI4Groups * kI4Pairs * kI8StepBytes;
  }
}

}  // namespace baton::kernels::cpu

#endif
