// The tiles of bfloat16 products with AVX512_BF16: VDPBF16PS adds two products of bfloat16 to each of 16
// sums, that of the high halves first, each by a multiply-add that rounds once (Intel's manual, volume 2;
// AMD's processors are tried at start, BF16TilesFor). The instruction set is an attribute of each function
// here: the rest of the binary runs without it.
#include "engine/kernels/cpu/bf16_dot.h"

#include "engine/kernels/cpu/bf16_tiles.h"

#if defined(__x86_64__)

namespace baton::kernels::cpu {
namespace {

constexpr int kVectors = kPanelRows / 16;

// A row of x as words, the earlier column of each in the high half, rounded as tensor::ToBF16 does. Numbers
// below 2^-126 become zeros of their sign.
BATON_BF16_DOT void Round(const float* x, int64_t cols, std::byte* row) {
  const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
  for (int64_t k = 0; k < cols; k += kBF16Block, row += kBF16Pairs * kBF16DotPairBytes) {
    const int64_t left = cols - k;
    const auto mask = [left](int from) BATON_BF16_DOT {
      return left >= from + 16 ? __mmask16{0xFFFF}
             : left <= from    ? __mmask16{0}
                               : static_cast<__mmask16>((1u << (left - from)) - 1);
    };
    const __m512i low = _mm512_castps_si512(_mm512_maskz_loadu_ps(mask(0), x + k));
    const __m512i high = _mm512_castps_si512(_mm512_maskz_loadu_ps(mask(16), x + k + 16));
    const __m512 early = _mm512_castsi512_ps(_mm512_permutex2var_epi32(low, evens, high));
    const __m512 late = _mm512_castsi512_ps(_mm512_permutex2var_epi32(low, odds, high));
    const __m512i in_low =
        _mm512_maskz_cvtepu16_epi32(0xFFFF, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(late)));
    const __m512i in_high =
        _mm512_maskz_cvtepu16_epi32(0xFFFF, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(early)));
    _mm512_storeu_si512(row, _mm512_or_si512(in_low, _mm512_maskz_slli_epi32(0xFFFF, in_high, 16)));
  }
}

BATON_BF16_DOT inline __m512 AddPair(__m512 sum, __m512bh x, const std::byte* w) {
  return _mm512_dpbf16_ps(sum, x, reinterpret_cast<__m512bh>(_mm512_loadu_si512(w)));
}

// kRows rows of x against kPanels panels. With three rows and one panel, the sums of both halves of a block
// stay in registers.
template <int kRows, int kPanels>
BATON_BF16_DOT void Multiply(const BF16Tile& tile, int64_t panel_bytes) {
  // A product of one row fetches so far ahead of what it reads, in each of its panels.
  constexpr int64_t kFetchedAhead = 2048;
  constexpr int kSums = kPanels * kVectors;
  const std::byte *x = tile.x, *w = tile.w, *ahead = tile.ahead;
  const int64_t x_stride = tile.x_stride;
  const int lines = tile.lines;
  float* const sums = tile.sums;
  for (int64_t block = 0; block < tile.blocks; ++block) {
    __m512 sum[2][kRows][kSums];
    BATON_UNROLLED
    for (int half = 0; half < 2; ++half) {
      BATON_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        BATON_UNROLLED
        for (int v = 0; v < kSums; ++v) sum[half][r][v] = _mm512_setzero_ps();
      }
      for (int pair = 0; pair < kBF16Pairs / 2; ++pair) {
        for (int line = 0; line < lines; ++line) _mm_prefetch(ahead + line * kBF16LineBytes, _MM_HINT_T1);
        ahead += lines * kBF16LineBytes;
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          const __m512bh value = PairAt(x + r * x_stride);
          BATON_UNROLLED
          for (int v = 0; v < kSums; ++v) {
            const std::byte* at = w + v / kVectors * panel_bytes + v % kVectors * kBF16LineBytes;
            if constexpr (kPanels > 1) _mm_prefetch(at + kFetchedAhead, _MM_HINT_T0);
            sum[half][r][v] = AddPair(sum[half][r][v], value, at);
          }
        }
        w += kBF16PairBytes;
        x += kBF16DotPairBytes;
      }
    }
    BATON_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      BATON_UNROLLED
      for (int v = 0; v < kSums; ++v) {
        float* const at = sums + r * kPanelRows + v * 16;
        const __m512 both = _mm512_add_ps(sum[0][r][v], sum[1][r][v]);
        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), both));
      }
    }
  }
}

template <int kRows>
BATON_BF16_DOT void Tile(const BF16Tile& tile) {
  Multiply<kRows, 1>(tile, 0);
}

BATON_BF16_DOT void OneRow(const BF16Tile& tile, int64_t panel_bytes) {
  Multiply<1, kFloatPanelsAbreast>(tile, panel_bytes);
}

}  // namespace

const BF16Tiles kBF16DotTiles = {
    .x_block_bytes = kBF16Pairs * kBF16DotPairBytes,
    .round = &Round,
    .rows = 3,
    .one_pass = true,
    .by_rows = {&Tile<1>, &Tile<2>, &Tile<3>, &Tile<4>, &Tile<5>, &Tile<6>},
    .abreast = kFloatPanelsAbreast,
    .one_row = &OneRow,
};

bool HasBF16Dot() { return __builtin_cpu_supports("avx512bf16"); }

}  // namespace baton::kernels::cpu

#endif
