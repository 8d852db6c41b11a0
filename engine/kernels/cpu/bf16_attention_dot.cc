// Attention over KV in bfloat16 with AVX512_BF16 (see bf16_dot.cc): two rows of a block become 16 or 32 words
// in a register, of which VDPBF16PS multiplies both halves.
#include <array>

#include "engine/kernels/cpu/bf16_attention.h"
#include "engine/kernels/cpu/bf16_dot.h"

#if defined(__x86_64__)

namespace baton::kernels::cpu {
namespace {

constexpr int64_t kNumberBytes = sizeof(uint16_t);
constexpr int kHalf = kBF16Block / 2;  // columns of A, and of B

// Stands for the value of a token that none of the rows sees, in a pair with one that is seen.
constexpr uint16_t kNoValue[kMaxHeadDim] = {};

// Sums that are computed together: both halves of a block for each row and vector stay in registers.
constexpr int VectorsFor(int rows) { return rows > 3 ? 2 : 4; }

// Places of 16 numbers of each of two rows that become words: the earlier row's in the high half.
constexpr std::array<uint16_t, 32> WordPlaces(uint16_t early, uint16_t late) {
  std::array<uint16_t, 32> places{};
  for (size_t i = 0; i < 16; ++i) {
    places[2 * i] = static_cast<uint16_t>(late + i);
    places[2 * i + 1] = static_cast<uint16_t>(early + i);
  }
  return places;
}
alignas(64) constexpr auto kOfOneLine = WordPlaces(0, 16);
alignas(64) constexpr auto kLowOfTwoLines = WordPlaces(0, 32);
alignas(64) constexpr auto kHighOfTwoLines = WordPlaces(16, 48);

// Lines of the next tile are asked for before and after the products of a pair. Decode reads a tenth faster
// so than with one of the two (measured on Zen 4, which seems to drop some while many are under way).
BATON_BF16_DOT inline void Fetch(const void* line) { _mm_prefetch(line, _MM_HINT_T1); }

template <int kRows>
BATON_BF16_DOT void ScoreBlocks(const BF16Scores& job, int first_block) {
  constexpr int kBlocks = VectorsFor(kRows);
  constexpr int64_t kRowBytes = kBlockTokens * kNumberBytes;  // of a dimension
  const __m512i places = _mm512_load_si512(kOfOneLine.data());
  const std::byte *now[kBlocks], *next[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    now[b] = job.keys->now[first_block + b];
    next[b] = job.keys->next[first_block + b];
  }
  const bool ahead = job.keys->ahead;
  const auto fetch = [&next](int d) BATON_BF16_DOT {
    BATON_UNROLLED
    for (int b = 0; b < kBlocks; ++b) Fetch(next[b] + d * kRowBytes);
  };
  const std::byte* x = job.x;
  float* const scores = job.scores + first_block * kBlockTokens;
  for (int column = 0; column < job.head_dim; column += kBF16Block) {
    __m512 sum[2][kRows][kBlocks];
    BATON_UNROLLED
    for (int half = 0; half < 2; ++half) {
      BATON_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        BATON_UNROLLED
        for (int b = 0; b < kBlocks; ++b) sum[half][r][b] = _mm512_setzero_ps();
      }
      const int begin = column + half * kHalf;
      const int end = begin + kHalf < job.head_dim ? begin + kHalf : job.head_dim;
      for (int d = begin; d < end; d += 2, x += kBF16DotPairBytes) {
        __m512bh words[kBlocks];
        BATON_UNROLLED
        for (int b = 0; b < kBlocks; ++b) {
          const __m512i both = _mm512_loadu_si512(now[b] + d * kRowBytes);
          words[b] = reinterpret_cast<__m512bh>(_mm512_maskz_permutexvar_epi16(~0U, places, both));
        }
        if (ahead) fetch(d);
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          const __m512bh value = PairAt(x + r * job.x_stride);
          BATON_UNROLLED
          for (int b = 0; b < kBlocks; ++b) {
            sum[half][r][b] = _mm512_dpbf16_ps(sum[half][r][b], value, words[b]);
          }
        }
        if (ahead) fetch(d);
      }
    }
    BATON_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      BATON_UNROLLED
      for (int b = 0; b < kBlocks; ++b) {
        float* const at = scores + r * kTileTokens + b * kBlockTokens;
        const __m512 before = column == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(at);
        _mm512_storeu_ps(at, _mm512_add_ps(before, _mm512_add_ps(sum[0][r][b], sum[1][r][b])));
      }
    }
  }
}

template <int kRows>
BATON_BF16_DOT void ScoreRows(const BF16Scores& job) {
  constexpr int kBlocks = VectorsFor(kRows);
  for (int b = job.first_block / kBlocks * kBlocks; b < job.end_block; b += kBlocks) {
    ScoreBlocks<kRows>(job, b);
  }
}

// Adds to the numbers [column, column + 32) of a head, or [column, column + 64).
template <int kRows>
BATON_BF16_DOT void MixColumns(const BF16Mix& job, int column) {
  constexpr int kVectors = VectorsFor(kRows), kLines = kVectors / 2;
  constexpr int kLineNumbers = 32;
  const __m512i low = _mm512_load_si512(kLowOfTwoLines.data());
  const __m512i high = _mm512_load_si512(kHighOfTwoLines.data());
  __mmask32 mask[kLines];
  BATON_UNROLLED
  for (int l = 0; l < kLines; ++l) {
    const int left = job.head_dim - column - l * kLineNumbers;
    mask[l] = left >= kLineNumbers ? ~0U : left <= 0 ? 0 : (1U << left) - 1;
  }
  const int head_dim = job.head_dim;
  const bool ahead = job.values->ahead;
  const auto fetch = [head_dim](const uint16_t* rows) BATON_BF16_DOT {
    BATON_UNROLLED
    for (int l = 0; l < kLines; ++l) {
      Fetch(rows + l * kLineNumbers);
      Fetch(rows + head_dim + l * kLineNumbers);
    }
  };
  float* const out = job.out + OutPanel(column) + column % kPanelRows;
  for (int token = job.range.begin / kBF16Block * kBF16Block; token < job.range.end; token += kBF16Block) {
    __m512 sum[2][kRows][kVectors];
    BATON_UNROLLED
    for (int half = 0; half < 2; ++half) {
      BATON_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        BATON_UNROLLED
        for (int v = 0; v < kVectors; ++v) sum[half][r][v] = _mm512_setzero_ps();
      }
      // The tokens of a half are those of a block.
      static_assert(kHalf == kBlockTokens);
      const int start = token + half * kHalf;
      const int begin = job.range.begin > start ? job.range.begin - start : 0;
      const int end = job.range.end < start + kHalf ? job.range.end - start : kHalf;
      const auto* now = reinterpret_cast<const uint16_t*>(job.values->now[start / kBlockTokens]) + column;
      const auto* next = reinterpret_cast<const uint16_t*>(job.values->next[start / kBlockTokens]) + column;
      const bool whole = begin == 0 && end == kHalf;
      for (int t = begin / 2 * 2; t < end; t += 2) {
        const uint16_t *early = now + t * head_dim, *late = early + head_dim;
        if (!whole && t < begin) early = kNoValue;
        if (!whole && t + 1 >= end) late = kNoValue;
        __m512bh words[kVectors];
        BATON_UNROLLED
        for (int l = 0; l < kLines; ++l) {
          const __m512i a = _mm512_maskz_loadu_epi16(mask[l], early + l * kLineNumbers);
          const __m512i b = _mm512_maskz_loadu_epi16(mask[l], late + l * kLineNumbers);
          words[2 * l] = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(a, low, b));
          words[2 * l + 1] = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(a, high, b));
        }
        if (ahead) fetch(next + t * head_dim);
        const std::byte* const x = job.x + (start + t) * kNumberBytes;
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          const __m512bh value = PairAt(x + r * job.x_stride);
          BATON_UNROLLED
          for (int v = 0; v < kVectors; ++v) {
            sum[half][r][v] = _mm512_dpbf16_ps(sum[half][r][v], value, words[v]);
          }
        }
        if (ahead) fetch(next + t * head_dim);
      }
    }
    BATON_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        float* const at = out + r * kPanelRows + v * 16;
        const __m512 both = _mm512_add_ps(sum[0][r][v], sum[1][r][v]);
        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), both));
      }
    }
  }
}

template <int kRows>
BATON_BF16_DOT void MixRows(const BF16Mix& job) {
  for (int column = 0; column < job.head_dim; column += VectorsFor(kRows) * 16) {
    MixColumns<kRows>(job, column);
  }
}

void Score(const BF16Scores& job) {
  WithRows(job.rows, [&](auto rows) { ScoreRows<rows.value>(job); });
}

void Mix(const BF16Mix& job) {
  WithRows(job.rows, [&](auto rows) { MixRows<rows.value>(job); });
}

}  // namespace

const BF16Attention kBF16DotAttention = {.score = &Score, .mix = &Mix};

}  // namespace baton::kernels::cpu

#endif
