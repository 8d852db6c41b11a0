// The instruction sets (AVX512_BF16, and those of amx_tiles.cc) are attributes of each function here: the
// rest of the binary runs without them.
#include "engine/kernels/cpu/bf16_amx.h"

#include <algorithm>

#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/bf16_dot.h"
#include "engine/kernels/cpu/bf16_tiles.h"

#if defined(__x86_64__)

namespace baton::kernels::cpu {
namespace {

static_assert(kBF16BlockBytes == kTileStepBytes && kBF16Block * sizeof(uint16_t) == kTileRowBytes);

constexpr int kVectors = kPanelRows / 16;
constexpr int64_t kHalfBytes = kBF16Pairs / 2 * kBF16PairBytes;

// Turns words of columns 2j, 2j + 1 (bf16_tiles.h) into words of columns k, k + 16, of some blocks of a
// panel.
BATON_BF16_DOT void TurnBlocks(const std::byte* panel, int64_t blocks, std::byte* steps) {
  const __m512i low = _mm512_set1_epi32(0xFFFF), high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (int64_t b = 0; b < blocks; ++b) {
    for (int pair = 0; pair < kBF16Pairs / 2; ++pair) {
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        const __m512i first = _mm512_loadu_si512(panel + pair * kBF16PairBytes + v * kBF16LineBytes);
        const __m512i second =
            _mm512_loadu_si512(panel + kHalfBytes + pair * kBF16PairBytes + v * kBF16LineBytes);
        std::byte* const to = steps + 2 * pair * kBF16PairBytes + v * kBF16LineBytes;
        // The earlier column is in the high half.
        const __m512i early =
            _mm512_or_si512(_mm512_maskz_srli_epi32(0xFFFF, first, 16), _mm512_and_si512(second, high));
        const __m512i late =
            _mm512_or_si512(_mm512_and_si512(first, low), _mm512_maskz_slli_epi32(0xFFFF, second, 16));
        _mm512_storeu_si512(to, early);
        _mm512_storeu_si512(to + kBF16PairBytes, late);
      }
    }
    panel += kBF16BlockBytes;
    steps += kTileStepBytes;
  }
}

}  // namespace

// A line more than its blocks take: strides of a power of two crowd in the caches.
int64_t BF16AmxRowBytes(int64_t cols) { return (BF16Blocks(cols) + 1) * kTileRowBytes; }

BATON_BF16_DOT void BF16AmxRound(const float* x, int64_t cols, std::byte* row) {
  for (int64_t k = 0; k < cols; k += kBF16Block, row += kTileRowBytes) {
    const int64_t left = cols - k;
    const auto mask = [left](int from) BATON_BF16_DOT {
      return left >= from + 16 ? __mmask16{0xFFFF}
             : left <= from    ? __mmask16{0}
                               : static_cast<__mmask16>((1u << (left - from)) - 1);
    };
    const __m512 first = _mm512_maskz_loadu_ps(mask(0), x + k);
    const __m512 second = _mm512_maskz_loadu_ps(mask(16), x + k + 16);
    const __m512i in_low =
        _mm512_maskz_cvtepu16_epi32(0xFFFF, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(first)));
    const __m512i in_high =
        _mm512_maskz_cvtepu16_epi32(0xFFFF, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(second)));
    _mm512_storeu_si512(row, _mm512_or_si512(in_low, _mm512_maskz_slli_epi32(0xFFFF, in_high, 16)));
  }
}

BATON_BF16_DOT void BF16AmxRead(const std::byte* row, int64_t cols, float* out) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (int64_t b = 0; b < BF16Blocks(cols); ++b, row += kTileRowBytes, out += kBF16Block) {
    const __m512i words = _mm512_loadu_si512(row);
    _mm512_storeu_si512(out, _mm512_maskz_slli_epi32(0xFFFF, words, 16));
    _mm512_storeu_si512(out + 16, _mm512_and_si512(words, high));
  }
}

void BF16AmxMultiply(const PanelProduct& job, int64_t first, int64_t rows, float* sums) {
  alignas(64) std::byte turned[kMostTileSteps * kTileStepBytes];
  const std::byte* const x = job.prepared.From(first).data;
  ForTileSteps(BF16Blocks(job.depth), rows, job.panels, [&](int64_t begin, int64_t count, int panel) {
    const std::byte* const at = job.panel + panel * job.panel_bytes + begin * kBF16BlockBytes;
    TurnBlocks(at, count, turned);
    MultiplyBF16Tiles({.x = x + begin * kTileRowBytes,
                       .x_stride = job.prepared.stride,
                       .rows = rows,
                       .panel = turned,
                       .steps = count,
                       .sums = reinterpret_cast<std::byte*>(sums + panel * rows * kPanelRows),
                       .ahead = at + count * kBF16BlockBytes,
                       .ahead_step = kBF16BlockBytes});
  });
}

}  // namespace baton::kernels::cpu

#endif
