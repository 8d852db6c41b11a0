// Attention over KV in bfloat16 by the tiles of AMX, for many query vectors: keys and values of a tile of 64
// tokens are turned into steps of words (bf16_amx.h) once for all of them.
#include <algorithm>
#include <array>

#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/bf16_attention.h"
#include "engine/kernels/cpu/bf16_dot.h"

#if defined(__x86_64__)

namespace baton::kernels::cpu {
namespace {

static_assert(kTileTokens == kPanelRows && kBlockTokens == kBF16Block / 2);

constexpr int kHalf = kBF16Block / 2;  // lines of a step
constexpr int64_t kNumberBytes = sizeof(uint16_t);
constexpr int64_t kLineBytes = 4 * kPanelRows;

// Places of 16 numbers of each of two vectors that become words: those of the first in the low halves.
constexpr std::array<uint16_t, 32> WordPlaces(uint16_t first) {
  std::array<uint16_t, 32> places{};
  for (size_t i = 0; i < 16; ++i) {
    places[2 * i] = static_cast<uint16_t>(first + i);
    places[2 * i + 1] = static_cast<uint16_t>(first + 32 + i);
  }
  return places;
}
alignas(64) constexpr auto kLowWords = WordPlaces(0);
alignas(64) constexpr auto kHighWords = WordPlaces(16);

BATON_BF16_DOT inline void Fetch(const void* line) { _mm_prefetch(line, _MM_HINT_T1); }

// Numbers d and d + 16 of the keys of 64 tokens become the words of a line; zeros where a head has fewer.
BATON_BF16_DOT void TurnKeys(const TileOfBlocks& keys, int head_dim, std::byte* steps) {
  constexpr int64_t kRowBytes = kBlockTokens * kNumberBytes;  // of a number: two rows are a line of a cache
  const __m512i low = _mm512_load_si512(kLowWords.data()), high = _mm512_load_si512(kHighWords.data());
  for (int step = 0; step < head_dim; step += kBF16Block) {
    for (int line = 0; line < kHalf; line += 2, steps += 2 * kLineBytes) {
      const int d = step + line;
      const bool early = d < head_dim, late = d + kHalf < head_dim;
      for (int b = 0; b < kTileBlocks; ++b) {
        const __m512i first =
            early ? _mm512_loadu_si512(keys.now[b] + d * kRowBytes) : _mm512_setzero_si512();
        const __m512i second =
            late ? _mm512_loadu_si512(keys.now[b] + (d + kHalf) * kRowBytes) : _mm512_setzero_si512();
        if (keys.ahead && early) Fetch(keys.next[b] + d * kRowBytes);
        if (keys.ahead && late) Fetch(keys.next[b] + (d + kHalf) * kRowBytes);
        std::byte* const to = steps + b * kBlockTokens * 4;
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, low, second));
        _mm512_storeu_si512(to + kLineBytes, _mm512_permutex2var_epi16(first, high, second));
      }
    }
  }
}

// Tokens t and t + 16 of up to 64 numbers of the values, from number `column` on, become the words of a line;
// zeros for tokens outside of the range, and where a head has fewer numbers.
BATON_BF16_DOT void TurnValues(const BF16Mix& job, int column, int first_token, std::byte* steps) {
  constexpr int kVectorNumbers = 32;
  const __m512i low = _mm512_load_si512(kLowWords.data()), high = _mm512_load_si512(kHighWords.data());
  const TileOfBlocks& values = *job.values;
  const int head_dim = job.head_dim;
  for (int step = first_token; step < job.range.end; step += kBF16Block) {
    const int block = step / kBlockTokens;
    for (int line = 0; line < kHalf; ++line, steps += kLineBytes) {
      const bool early = step + line >= job.range.begin && step + line < job.range.end;
      const bool late = step + kHalf + line >= job.range.begin && step + kHalf + line < job.range.end;
      const int64_t row = line * head_dim * kNumberBytes;
      BATON_UNROLLED
      for (int v = 0; v < kPanelRows / kVectorNumbers; ++v) {
        const int number = column + v * kVectorNumbers, left = head_dim - number;
        const __mmask32 mask = left >= kVectorNumbers ? ~0U : left <= 0 ? 0 : (1U << left) - 1;
        const int64_t at = row + number * kNumberBytes;
        const __m512i first =
            _mm512_maskz_loadu_epi16(early ? mask : 0, early ? values.now[block] + at : values.now[0]);
        const __m512i second =
            _mm512_maskz_loadu_epi16(late ? mask : 0, late ? values.now[block + 1] + at : values.now[0]);
        if (values.ahead && left > 0) {
          Fetch(values.next[block] + at);
          Fetch(values.next[block + 1] + at);
        }
        std::byte* const to = steps + v * kVectorNumbers * 4;
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, low, second));
        _mm512_storeu_si512(to + kTileRowBytes, _mm512_permutex2var_epi16(first, high, second));
      }
    }
  }
}

void Score(const BF16Scores& job) {
  alignas(64) std::byte steps[(kMaxHeadDim / kBF16Block) * kTileStepBytes];
  TurnKeys(*job.keys, job.head_dim, steps);
  std::fill_n(job.scores, job.rows * kTileTokens, 0.0f);
  MultiplyBF16Tiles({.x = job.x,
                     .x_stride = job.x_stride,
                     .rows = job.rows,
                     .panel = steps,
                     .steps = BF16Blocks(job.head_dim),
                     .sums = reinterpret_cast<std::byte*>(job.scores),
                     .ahead = steps,
                     .ahead_step = 0});
}

void Mix(const BF16Mix& job) {
  alignas(64) std::byte steps[(kTileTokens / kBF16Block) * kTileStepBytes];
  const int first = job.range.begin / kBF16Block * kBF16Block;
  for (int column = 0; column < job.head_dim; column += kPanelRows) {
    TurnValues(job, column, first, steps);
    MultiplyBF16Tiles({.x = job.x + first * kNumberBytes,
                       .x_stride = job.x_stride,
                       .rows = job.rows,
                       .panel = steps,
                       .steps = BF16Blocks(job.range.end - first),
                       .sums = reinterpret_cast<std::byte*>(job.out + OutPanel(column)),
                       .ahead = steps,
                       .ahead_step = 0});
  }
}

}  // namespace

const BF16Attention kBF16AmxAttention = {.score = &Score, .mix = &Mix};

}  // namespace baton::kernels::cpu

#endif
