// Attention over KV in integers (i8, i4): the products of one tile, for attention.cc. Included once per
// instruction set. The definition of cpu-kv-i8/1, where p are the tile's probabilities before normalization
// and dk, dv the scales of keys and values:
//
//   q row:   a[d], dq as a row of x in integer_product.h, of q * scale * log2(e)
//   score    = float(sum over d of a[d] k[t][d]) * (dq dk[t])
//   weights: w[t] = p[t] dv[t], of tokens that are seen, else 0; m = max w
//            u[t] = w[t] * (16383 / m), to the nearest integer, ties to even
//   out[d]   = fma(float(sum over t of u[t] v[t][d]), m / 16383, out[d])
//
// A tile with m below 2^-100 adds nothing, one with an infinity or a NaN makes NaNs. The sums are exact
// int32. So that the tiles of int8 weights (i8_tiles.h) compute them, a tile of KV is first put into the form
// of their panels: keys as 64 rows of head_dim columns, values as head_dim rows of 64 columns, each number as
// a byte plus 128. That form lives in the first-level cache, for one tile.
#if defined(BATON_COMMON_KERNELS_CPU_INTEGER_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_COMMON_KERNELS_CPU_INTEGER_ATTENTION_INL_H_
#undef BATON_COMMON_KERNELS_CPU_INTEGER_ATTENTION_INL_H_
#else
#define BATON_COMMON_KERNELS_CPU_INTEGER_ATTENTION_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/attention_tile.h"
#include "engine/kernels/cpu/i8_tiles.h"
#include "engine/kernels/cpu/integer_product.h"
#include "engine/kernels/cpu/vector_math-inl.h"
#include "engine/kv/store/i4_vector.h"
#include "engine/kv/store/kv_codec.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {

using Integers32 = hn::RebindToSigned<F>;

// 64 numbers of 64 tokens' values.
constexpr int64_t kIntegerValueChunk = kTileTokens / kI8Step * kI8StepBytes;

// The levels of i4, plus 128.
constexpr auto kOffsetLevels = [] {
  std::array<uint8_t, kv::kI4Levels.size()> levels{};
  for (size_t i = 0; i < levels.size(); ++i) levels[i] = static_cast<uint8_t>(kv::kI4Levels[i] + kI8Offset);
  return levels;
}();

// Where the numbers at `column` of four tokens go in the panels of values.
constexpr int64_t ValuesAt(int column, int step) {
  return column / kPanelRows * kIntegerValueChunk + step * kI8StepBytes + column % kPanelRows * kI8Step;
}

// True if columns of values in i8 stand in their panels by ColumnIn, and not in their own order.
constexpr bool Interleaved(tensor::DType dtype, int head_dim) {
  return kLanes == 16 && dtype == tensor::DType::kI8 && head_dim % kPanelRows == 0;
}
// The column that stands at `place`: four rows of 64 bytes, interleaved within each 16, come out like that.
constexpr int ColumnIn(int place) {
  return place / kPanelRows * kPanelRows + place % 16 / 4 * 16 + place % kPanelRows / 16 * 4 + place % 4;
}

HWY_INLINE void Fetch(const std::byte* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kI8LineBytes) __builtin_prefetch(from + at, 0, 2);
}

#if HWY_TARGET <= HWY_AVX3
// to[t][r] = rows[r][t] + 128: four rows of 16 signed bytes, side by side.
HWY_INLINE void TransposeSideBySide(const int8_t* rows, uint8_t* to) {
  static constexpr uint32_t kWords[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  alignas(16) static constexpr uint8_t kBytes[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const hn::FixedTag<uint8_t, 64> bytes;
  const hn::FixedTag<uint32_t, 16> words;
  const auto by_token = hn::TableLookupLanes(hn::LoadU(words, reinterpret_cast<const uint32_t*>(rows)),
                                             hn::SetTableIndices(words, kWords));
  const auto turned = hn::TableLookupBytes(hn::BitCast(bytes, by_token), hn::LoadDup128(bytes, kBytes));
  hn::StoreU(hn::Xor(turned, hn::Set(bytes, uint8_t{0x80})), bytes, to);
}

#endif

#if HWY_TARGET != HWY_SCALAR
// Four rows of kColumns signed bytes plus 128, for each column the four side by side. Columns come in their
// own order within each 16 bytes of a row, and those 16s interleaved: with 64 columns, the order of ColumnIn.
template <int kColumns>
HWY_INLINE void InterleaveRows(const int8_t* const (&rows)[4], uint8_t* to) {
  const hn::FixedTag<uint8_t, kColumns> bytes;
  const hn::FixedTag<uint16_t, kColumns / 2> pairs;
  const auto load = [&](int r) HWY_ATTR {
    return hn::Xor(hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(rows[r])),
                   hn::Set(bytes, uint8_t{0x80}));
  };
  const auto a = load(0), b = load(1), c = load(2), d = load(3);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(bytes, a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(bytes, a, b));
  const auto cd_low = hn::BitCast(pairs, hn::InterleaveLower(bytes, c, d));
  const auto cd_high = hn::BitCast(pairs, hn::InterleaveUpper(bytes, c, d));
  auto* out = reinterpret_cast<uint16_t*>(to);
  hn::StoreU(hn::InterleaveLower(pairs, ab_low, cd_low), pairs, out);
  hn::StoreU(hn::InterleaveUpper(pairs, ab_low, cd_low), pairs, out + kColumns / 2);
  hn::StoreU(hn::InterleaveLower(pairs, ab_high, cd_high), pairs, out + kColumns);
  hn::StoreU(hn::InterleaveUpper(pairs, ab_high, cd_high), pairs, out + 3 * kColumns / 2);
}
#endif

// to[t][r] = rows[r][t] + 128: four rows of 16 signed bytes.
HWY_INLINE void TransposeOffset(const int8_t* const (&rows)[4], uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int t = 0; t < 16; ++t) {
    for (int r = 0; r < 4; ++r) to[t * 4 + r] = static_cast<uint8_t>(rows[r][t] + kI8Offset);
  }
#else
  InterleaveRows<16>(rows, to);
#endif
}

// The levels, plus 128, of the low and the high halves of `count` bytes, a multiple of 16.
HWY_INLINE void ExpandCodes(const std::byte* codes, int count, uint8_t* low, uint8_t* high) {
  const auto* from = reinterpret_cast<const uint8_t*>(codes);
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < count; ++i) {
    low[i] = kOffsetLevels[from[i] & 0x0F];
    high[i] = kOffsetLevels[from[i] >> 4];
  }
#else
  const auto expand = [&](auto bytes, int i) HWY_ATTR {
    const auto levels = hn::LoadDup128(bytes, kOffsetLevels.data());
    const auto two = hn::LoadU(bytes, from + i);
    hn::StoreU(hn::TableLookupBytes(levels, hn::And(two, hn::Set(bytes, 0x0F))), bytes, low + i);
    const hn::Repartition<uint16_t, decltype(bytes)> pairs;
    const auto shifted = hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(pairs, two)));
    hn::StoreU(hn::TableLookupBytes(levels, hn::And(shifted, hn::Set(bytes, 0x0F))), bytes, high + i);
  };
  const hn::CappedTag<uint8_t, 64> widest;
  constexpr int kWidest = static_cast<int>(hn::MaxLanes(widest));
  int i = 0;
  for (; i + kWidest <= count; i += kWidest) expand(widest, i);
  for (; i < count; i += 16) expand(hn::FixedTag<uint8_t, 16>(), i);
#endif
}

// The keys of a tile become a panel of 64 rows. What follows each line of a block is fetched for the next
// tile.
inline void UnpackKeys(tensor::DType dtype, const TileOfBlocks& keys, int head_dim, IntegerTile& tile) {
  const int64_t scales_at = kv::ScalesAt(dtype, head_dim);
  for (int b = 0; b < kTileBlocks; ++b) {
    const std::byte* block = keys.now[b];
    const std::byte* next = keys.next[b];
    uint8_t* to = tile.keys + b * kBlockTokens * kI8Step;
    if (dtype == tensor::DType::kI8) {
      const auto* from = reinterpret_cast<const int8_t*>(block);
      for (int d = 0; d < head_dim; d += 4, from += 4 * kBlockTokens, to += kI8StepBytes) {
        if (keys.ahead) Fetch(next + d * kBlockTokens, kI8LineBytes);
#if HWY_TARGET <= HWY_AVX3
        TransposeSideBySide(from, to);
#else
        TransposeOffset({from, from + kBlockTokens, from + 2 * kBlockTokens, from + 3 * kBlockTokens}, to);
#endif
      }
    } else {
      for (int d = 0; d < head_dim; d += 8, to += 2 * kI8StepBytes) {
        const int64_t at = d * kBlockTokens / 2;
        if (keys.ahead) Fetch(next + at, kI8LineBytes);
        ExpandCodes(block + at, 4 * kBlockTokens, to, to + kI8StepBytes);
      }
    }
    if (keys.ahead) Fetch(next + scales_at, kI8LineBytes);
    std::memcpy(tile.key_scales + b * kBlockTokens, block + scales_at, kBlockTokens * sizeof(float));
  }
}

// Four tokens' values in i8 become a step of the panels.
HWY_INLINE void UnpackFourValues(const int8_t* four, int head_dim, int step, uint8_t* values) {
  int column = 0;
#if HWY_TARGET <= HWY_AVX3
  if (Interleaved(tensor::DType::kI8, head_dim)) {
    for (; column < head_dim; column += kPanelRows) {
      const int8_t* at = four + column;
      InterleaveRows<64>({at, at + head_dim, at + 2 * head_dim, at + 3 * head_dim},
                         values + ValuesAt(column, step));
    }
  }
#endif
  for (; column + 16 <= head_dim; column += 16) {
    const int8_t* at = four + column;
    TransposeOffset({at, at + head_dim, at + 2 * head_dim, at + 3 * head_dim},
                    values + ValuesAt(column, step));
  }
  for (; column < head_dim; ++column) {
    uint8_t* to = values + ValuesAt(column, step);
    for (int r = 0; r < 4; ++r) to[r] = static_cast<uint8_t>(four[r * head_dim + column] + kI8Offset);
  }
}

// The values of a tile become panels of 64 rows, one for each 64 numbers of a head.
inline void UnpackValues(tensor::DType dtype, const TileOfBlocks& values, int head_dim, IntegerTile& tile) {
  const int64_t scales_at = kv::ScalesAt(dtype, head_dim);
  const int64_t four_bytes = scales_at * kI8Step / kBlockTokens;
  for (int b = 0; b < kTileBlocks; ++b) {
    for (int four = 0; four < kBlockTokens / kI8Step; ++four) {
      const int step = b * kBlockTokens / kI8Step + four;
      const std::byte* from = values.now[b] + four * four_bytes;
      if (values.ahead) Fetch(values.next[b] + four * four_bytes, four_bytes);
      if (dtype == tensor::DType::kI8) {
        UnpackFourValues(reinterpret_cast<const int8_t*>(from), head_dim, step, tile.values);
      } else {
        // A run of columns stays within one panel.
        const int half = head_dim / 2, run = half % 16 == 0 ? 16 : 4;
        for (int column = 0; column < half; column += run) {
          ExpandCodes(from + column * 4, run * 4, tile.values + ValuesAt(column, step),
                      tile.values + ValuesAt(half + column, step));
        }
      }
    }
    if (values.ahead) Fetch(values.next[b] + scales_at, kI8LineBytes);
    std::memcpy(tile.value_scales + b * kBlockTokens, values.now[b] + scales_at,
                kBlockTokens * sizeof(float));
  }
}

// sums[r][64] = exact sums of rows of integers, `stride` bytes apart, with the 64 rows of a panel, 128 too
// much in each byte of the panel.
inline void SumPanel(const AttentionTiles& all, const std::byte* x, int64_t stride, int rows,
                     const uint8_t* panel, int64_t steps, int32_t* sums) {
  constexpr int64_t kSteps = kTileStepBytes / kI8StepBytes;  // of a panel, in one of tiles of AMX
  const I8Tiles& tiles = *all.integers;
  std::memset(sums, 0, static_cast<size_t>(rows) * kPanelRows * sizeof(int32_t));
  if (all.many_integers != nullptr && rows >= kManyVectors && steps % kSteps == 0) {
    return all.many_integers({.x = x,
                              .x_stride = stride,
                              .rows = rows,
                              .panel = reinterpret_cast<const std::byte*>(panel),
                              .steps = steps / kSteps,
                              .sums = reinterpret_cast<std::byte*>(sums),
                              .ahead = x,
                              .ahead_step = 0});
  }
  // As few tiles as it takes, of sizes that differ by one at most.
  const int count = (rows + tiles.rows - 1) / tiles.rows;
  for (int i = 0; i < count; ++i) {
    const int begin = i * rows / count, end = (i + 1) * rows / count;
    tiles.by_rows[end - begin - 1]({.x = x + begin * stride,
                                    .x_stride = stride,
                                    .panel = reinterpret_cast<const std::byte*>(panel),
                                    .steps = steps,
                                    .sums = sums + begin * kPanelRows,
                                    .ahead = x,
                                    .lines = 0});
  }
}

// scores[r][64] of `rows` vectors, quantized, against a tile.
inline void ScoreIntegers(const AttentionTiles& tiles, const std::byte* q, int64_t stride, int rows,
                          int head_dim, const IntegerTile& tile, float* scores) {
  const F f;
  const Integers32 words;
  HWY_ALIGN int32_t sums[kQueryTile * kTileTokens];
  SumPanel(tiles, q + kIntegersAt, stride, rows, tile.keys, head_dim / kI8Step, sums);
  for (int r = 0; r < rows; ++r) {
    const IntegerRowHead head = HeadOf(q + r * stride);
    const auto offset = hn::Set(words, kI8Offset * head.sum);
    const Vec scale = hn::Set(f, head.scale);
    for (int t = 0; t < kTileTokens; t += kLanes) {
      const auto sum = hn::Sub(hn::Load(words, sums + r * kTileTokens + t), offset);
      const Vec by = hn::Mul(scale, hn::Load(f, tile.key_scales + t));
      hn::Store(hn::Mul(hn::ConvertTo(f, sum), by), f, scores + r * kTileTokens + t);
    }
  }
}

// The weights u of one vector as rows of integers for the tiles: one row of 16-bit integers, or a row of
// their upper and one of their lower 7 bits. Returns what a sum is to be multiplied with; 0: leave it out.
struct IntegerWeights {
  float scale;
  int32_t sum;
};
inline IntegerWeights QuantizeWeights(const float* p, TokenRange range, const float* value_scales,
                                      bool in_bytes, std::byte* row) {
  constexpr float kMost = 16383;
  const F f;
  const Integers32 words;
  HWY_ALIGN float w[kTileTokens];
  auto most = hn::Zero(words);
  for (int t = 0; t < kTileTokens; t += kLanes) {
    const Vec token = hn::Iota(f, static_cast<float>(t));
    const auto seen = hn::And(hn::Ge(token, hn::Set(f, static_cast<float>(range.begin))),
                              hn::Lt(token, hn::Set(f, static_cast<float>(range.end))));
    const Vec weight = hn::IfThenElseZero(seen, hn::Mul(hn::Load(f, p + t), hn::Load(f, value_scales + t)));
    hn::Store(weight, f, w + t);
    // As integers, infinity and NaN are the largest.
    most = hn::Max(most, hn::And(hn::BitCast(words, weight), hn::Set(words, 0x7FFFFFFF)));
  }
  const auto largest = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(words, most)));
  if (!(largest < std::numeric_limits<float>::infinity())) {
    std::memset(row, 0, kTileTokens * sizeof(int16_t));
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  if (largest < kv::kTiny) return {0, 0};
  const float by = kMost / largest;
  int32_t sum = 0;
#if HWY_TARGET != HWY_SCALAR  // whose NearestInt is off by one just below a half
  const Vec scale = hn::Set(f, by);
  const hn::Rebind<int16_t, F> halves;
  const hn::Rebind<int8_t, F> bytes;
  auto sums = hn::Zero(words);
  HWY_ALIGN int16_t whole[kTileTokens];
  for (int t = 0; t < kTileTokens; t += kLanes) {
    const auto u = hn::NearestInt(hn::Mul(hn::Load(f, w + t), scale));
    sums = hn::Add(sums, u);
    if (in_bytes) {
      auto* to = reinterpret_cast<int8_t*>(row) + t;
      hn::StoreU(hn::DemoteTo(bytes, hn::DemoteTo(halves, hn::ShiftRight<7>(u))), bytes, to);
      hn::StoreU(hn::DemoteTo(bytes, hn::DemoteTo(halves, hn::And(u, hn::Set(words, 127)))), bytes,
                 to + kTileTokens);
    } else {
      hn::StoreU(hn::DemoteTo(halves, u), halves, whole + t);
    }
  }
  sum = hn::GetLane(hn::SumOfLanes(words, sums));
#else
  int16_t whole[kTileTokens];
  for (int t = 0; t < kTileTokens; ++t) {
    whole[t] = static_cast<int16_t>(std::lrint(w[t] * by));
    sum += whole[t];
  }
#endif
  if (!in_bytes) {  // in pairs, as a step of x
    for (int t = 0; t < kTileTokens; t += 4) {
      const int16_t pairs[4] = {whole[t], whole[t + 2], whole[t + 1], whole[t + 3]};
      std::memcpy(row + t * sizeof(int16_t), pairs, sizeof pairs);
    }
  }
  return {largest / kMost, sum};
}

// out (OutPanel) += the tile's values, by the probabilities p[r][64], of the tokens of range[r]. Columns of
// `out` stand as those of the panels do.
inline void MixIntegers(const AttentionTiles& tiles, const float* p, const TokenRange* range, int rows,
                        int head_dim, const IntegerTile& tile, float* out) {
  const bool in_bytes = tiles.integers->step_bytes == kI8Step;
  constexpr int64_t kStride = kTileTokens;
  // A row of 16-bit integers takes two strides, too.
  HWY_ALIGN std::byte x[2 * kQueryTile * kStride];
  IntegerWeights weights[kQueryTile];
  for (int r = 0; r < rows; ++r) {
    weights[r] = {0, 0};
    if (!range[r].empty()) {
      weights[r] =
          QuantizeWeights(p + r * kTileTokens, range[r], tile.value_scales, in_bytes, x + 2 * r * kStride);
    }
    // Its sums are not read.
    if (weights[r].scale == 0) std::memset(x + 2 * r * kStride, 0, 2 * kStride);
  }
  HWY_ALIGN int32_t sums[2 * kQueryTile * kPanelRows];
  const int sum_rows = in_bytes ? 2 * rows : rows;
  const int64_t stride = in_bytes ? kStride : 2 * kStride;
  for (int first = 0; first < head_dim; first += kPanelRows) {
    SumPanel(tiles, x, stride, sum_rows, tile.values + ValuesAt(first, 0), kTileTokens / kI8Step, sums);
    const int width = HWY_MIN(kPanelRows, head_dim - first);
    for (int r = 0; r < rows; ++r) {
      if (weights[r].scale == 0) continue;
      const int32_t* upper = sums + (in_bytes ? 2 * r : r) * kPanelRows;
      float* to = out + OutPanel(first) + r * kPanelRows;
      const auto add = [&](auto f, int d) HWY_ATTR {
        const hn::RebindToSigned<decltype(f)> words;
        auto sum = hn::LoadU(words, upper + d);
        if (in_bytes) sum = hn::Add(hn::ShiftLeft<7>(sum), hn::LoadU(words, upper + kPanelRows + d));
        sum = hn::Sub(sum, hn::Set(words, kI8Offset * weights[r].sum));
        hn::StoreU(hn::MulAdd(hn::ConvertTo(f, sum), hn::Set(f, weights[r].scale), hn::LoadU(f, to + d)), f,
                   to + d);
      };
      int d = 0;
      for (; d + kLanes <= width; d += kLanes) add(F(), d);
      if (d < width) add(hn::CappedTag<float, 8>(), d);  // 8 are left, of vectors of 16
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
