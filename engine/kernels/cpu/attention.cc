#include "engine/kernels/cpu/attention.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>

#include "common/base/check.h"
#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/attention_tile.h"
#include "engine/kernels/cpu/bf16_amx.h"
#include "engine/kernels/cpu/bf16_attention.h"
#include "engine/kernels/cpu/bf16_tiles.h"
#include "engine/kernels/cpu/i8_tiles.h"
#include "engine/kernels/cpu/integer_product.h"
#include "engine/kv/store/i4_vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/bf16_attention-inl.h"
#include "engine/kernels/cpu/integer_attention-inl.h"
#include "engine/kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

using Range = TokenRange;
using Blocks = TileOfBlocks;
static_assert(kBlockTokens == kSumLanes);

// The blocks, or output vectors, whose chains run side by side for so many query vectors: as in
// panel_product-inl.h, enough to hide latency, few enough for the registers.
constexpr int BlocksAtOnce(int rows) { return kLanes == 16 || rows == 1 ? 4 : rows == 2 ? 2 : 1; }
constexpr int VectorsAtOnce(int rows) { return kLanes == 16 || rows <= 2 ? 4 : 2; }

HWY_INLINE const float* Floats(const std::byte* from) { return reinterpret_cast<const float*>(from); }
HWY_INLINE void FetchLine(const float* from) { __builtin_prefetch(from, 0, 2); }

// scores[r][16 b + t] = sum over d of q[r][d] * keys[b][d][t], in order of d; b from first_block on.
template <int kRows, int kBlocks, bool kAhead>
void ScoreBlocks(const float* q, int head_dim, const Blocks& keys, int first_block, float* scores) {
  constexpr int kVectors = kBlocks * kSumVectors;
  const F f;
  const float *now[kBlocks], *next[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    now[b] = Floats(keys.now[first_block + b]);
    next[b] = Floats(keys.next[first_block + b]);
  }
  Vec sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(f);
  }
  for (int d = 0; d < head_dim; ++d) {
    Vec key[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      key[v] = hn::LoadU(f, now[v / kSumVectors] + d * kBlockTokens + v % kSumVectors * kLanes);
    }
    if (kAhead) {
      for (int b = 0; b < kBlocks; ++b) FetchLine(next[b] + d * kBlockTokens);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec value = hn::Set(f, q[r * head_dim + d]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, key[v], sum[r][v]);
    }
  }
  float* at = scores + first_block * kBlockTokens;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], f, at + r * kTileTokens + v * kLanes);
  }
}

template <int kRows>
void ScoreRows(const float* q, int head_dim, const Blocks& keys, int first_block, int end_block,
               float* scores) {
  constexpr int kBlocks = BlocksAtOnce(kRows);
  for (int b = first_block / kBlocks * kBlocks; b < end_block; b += kBlocks) {
    keys.ahead ? ScoreBlocks<kRows, kBlocks, true>(q, head_dim, keys, b, scores)
               : ScoreBlocks<kRows, kBlocks, false>(q, head_dim, keys, b, scores);
  }
}

// Scores `rows` vectors (1 .. kSideBySide) against blocks [first_block, end_block) of a tile.
void Score(int rows, const float* q, int head_dim, const Blocks& keys, int first_block, int end_block,
           float* scores) {
  WithRows(rows, [&](auto n) { ScoreRows<n.value>(q, head_dim, keys, first_block, end_block, scores); });
}

// A query as the tiles of its product want it: the head of a row and integers of up to 16 bits, or floats.
constexpr int64_t kMostQueryBytes = kMaxHeadDim * sizeof(float);
static_assert(kIntegersAt + 2 * kMaxHeadDim <= kMostQueryBytes);

// One pass of a query tile over its KV. About 190 KB, on the stack of the thread that runs it.
struct Pass {
  // [count][head_dim], scaled for base 2
  HWY_ALIGN float q[kQueryTile * kMaxHeadDim];
  HWY_ALIGN float out[kQueryTile * kMaxHeadDim];  // as OutPanel says
  // Scores, then probabilities, of the vectors at work.
  HWY_ALIGN float scores[kQueryTile * kTileTokens];
  HWY_ALIGN float sum[kQueryTile * kSumLanes];
  float max[kQueryTile];
  Range range[kQueryTile];
  int head_dim;
  KvProduct of_keys, of_values;
  const AttentionTiles* tiles;
  const BF16Way* bf16;
  // For products that are not of floats: q as they want it, and the tile of KV in integers that is at work.
  HWY_ALIGN std::byte q_rows[kQueryTile * kMostQueryBytes];
  int64_t q_stride;
  IntegerTile tile;
};

// Brings a vector's sum and output from the maximum `old_max` to a new one.
void Rescale(Pass& pass, int query, Vec shrink) {
  const F f;
  float* const sum = pass.sum + query * kSumLanes;
  for (int i = 0; i < kSumLanes; i += kLanes) hn::Store(hn::Mul(hn::Load(f, sum + i), shrink), f, sum + i);
  for (int d = 0; d < pass.head_dim; d += kPanelRows) {
    float* const out = pass.out + OutPanel(d) + query * kPanelRows;
    for (int i = 0; i < kPanelRows; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(f, out + i), shrink), f, out + i);
    }
  }
}

// Turns a vector's scores into exp(score - running maximum), zero outside of `range`, and brings its sum and
// output to the new maximum.
void Normalize(Pass& pass, int query, Range range, float* scores) {
  const F f;
  constexpr int kVectors = kTileTokens / kLanes;
  Vec score[kVectors];
  BATON_UNROLLED
  for (int v = 0; v < kVectors; ++v) score[v] = hn::Load(f, scores + v * kLanes);
  if (range != Range{0, kTileTokens}) {
    const Vec lowest = hn::Set(f, -std::numeric_limits<float>::infinity());
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      const Vec token = hn::Iota(f, static_cast<float>(v * kLanes));
      const auto seen = hn::And(hn::Ge(token, hn::Set(f, static_cast<float>(range.begin))),
                                hn::Lt(token, hn::Set(f, static_cast<float>(range.end))));
      score[v] = hn::IfThenElse(seen, score[v], lowest);
    }
  }
  Vec tile_max = score[0];
  BATON_UNROLLED
  for (int v = 1; v < kVectors; ++v) tile_max = hn::Max(tile_max, score[v]);
  const float old_max = pass.max[query];
  const float tile_top = hn::GetLane(hn::MaxOfLanes(f, tile_max));
  const float new_max = old_max > tile_top ? old_max : tile_top;
  const Vec top = hn::Set(f, new_max);
  if (new_max != old_max || std::isinf(new_max)) {  // beside an infinite maximum, scores are NaN
    pass.max[query] = new_max;
    Rescale(pass, query, Exp2(f, hn::Sub(hn::Set(f, old_max), top)));
  }
  float* const sum = pass.sum + query * kSumLanes;
  Vec parts[kSumVectors];
  BATON_UNROLLED
  for (int v = 0; v < kSumVectors; ++v) parts[v] = hn::Load(f, sum + v * kLanes);
  BATON_UNROLLED
  for (int v = 0; v < kVectors; ++v) {
    const Vec weight = Exp2(f, hn::Sub(score[v], top));
    hn::Store(weight, f, scores + v * kLanes);
    parts[v % kSumVectors] = hn::Add(parts[v % kSumVectors], weight);
  }
  BATON_UNROLLED
  for (int v = 0; v < kSumVectors; ++v) hn::Store(parts[v], f, sum + v * kLanes);
}

// out (OutPanel) += sum over tokens t in `range`, in order, of weights[r][t] * values[t / 16][t % 16], of
// kVectors vectors from `column` on.
template <class D, int kRows, int kVectors, bool kAhead>
void MixColumns(const float* weights, Range range, const Blocks& values, int column, int head_dim,
                float* out) {
  const D f;
  constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
  float* const at = out + OutPanel(column) + column % kPanelRows;
  hn::Vec<D> sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(f, at + r * kPanelRows + v * kWidth);
  }
  for (int t = range.begin; t < range.end; ++t) {
    const int offset = t % kBlockTokens * head_dim + column;
    const float* token = Floats(values.now[t / kBlockTokens]) + offset;
    hn::Vec<D> value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = hn::LoadU(f, token + v * kWidth);
    if (kAhead) {
      for (int v = 0; v < kVectors; ++v)
        FetchLine(Floats(values.next[t / kBlockTokens]) + offset + v * kWidth);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(f, weights[r * kTileTokens + t]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, value[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], f, at + r * kPanelRows + v * kWidth);
  }
}

template <int kRows, bool kAhead>
void MixRows(const float* weights, Range range, const Blocks& values, int head_dim, float* out) {
  constexpr int kVectors = VectorsAtOnce(kRows);
  int column = 0;
  for (; column + kVectors * kLanes <= head_dim; column += kVectors * kLanes) {
    MixColumns<F, kRows, kVectors, kAhead>(weights, range, values, column, head_dim, out);
  }
  for (; column + kLanes <= head_dim; column += kLanes) {
    MixColumns<F, kRows, 1, kAhead>(weights, range, values, column, head_dim, out);
  }
  if (column < head_dim) {  // 8 columns are left, of vectors of 16
    using Half = hn::CappedTag<float, 8>;
    MixColumns<Half, kRows, 1, kAhead>(weights, range, values, column, head_dim, out);
  }
}

// Mixes the tokens of `range`, which all of `rows` vectors (1 .. kSideBySide) see.
void Mix(int rows, const float* weights, Range range, const Blocks& values, int head_dim, float* out) {
  if (range.empty()) return;
  WithRows(rows, [&](auto n) {
    values.ahead ? MixRows<n.value, true>(weights, range, values, head_dim, out)
                 : MixRows<n.value, false>(weights, range, values, head_dim, out);
  });
}

// The same of vectors that see the tokens of ranges of their own.
void MixFloats(int rows, const float* weights, const Range* range, const Blocks& values, int head_dim,
               float* out) {
  Range all = range[0];
  for (int r = 1; r < rows; ++r) all = {HWY_MAX(all.begin, range[r].begin), HWY_MIN(all.end, range[r].end)};
  // Tokens seen by all go through together; the ends, which only some see, one query at a time, because a
  // value that a query doesn't see must not touch it: zero times infinity is not zero.
  Blocks unfetched = values;
  unfetched.ahead = false;
  const auto mix_one = [&](int r, Range part) {
    Mix(1, weights + r * kTileTokens, part, unfetched, head_dim, out + r * kPanelRows);
  };
  if (all.empty()) {
    for (int r = 0; r < rows; ++r) mix_one(r, range[r]);
    return;
  }
  for (int r = 0; r < rows; ++r) mix_one(r, {range[r].begin, all.begin});
  Mix(rows, weights, all, values, head_dim, out);
  for (int r = 0; r < rows; ++r) mix_one(r, {all.end, range[r].end});
}

// The tokens that any of `count` vectors sees.
Range SeenByAny(const Range* range, int count) {
  Range any = {kTileTokens, 0};
  for (int i = 0; i < count; ++i) {
    if (!range[i].empty()) any = {HWY_MIN(any.begin, range[i].begin), HWY_MAX(any.end, range[i].end)};
  }
  return any;
}

// out += the values in bfloat16, by weights [rows][64], which are 0 but for tokens in `range`.
void MixRounded(const BF16Way& way, const float* weights, Range range, int rows, const Blocks& values,
                int head_dim, float* out) {
  HWY_ALIGN std::byte x[kQueryTile * kTileTokens * sizeof(float)];
  const int64_t stride = kTileTokens / kBF16Block * way.x_block_bytes;
  for (int r = 0; r < rows; ++r) way.round(weights + r * kTileTokens, kTileTokens, x + r * stride);
  way.passes->mix({.rows = rows,
                   .x = x,
                   .x_stride = stride,
                   .range = range,
                   .values = &values,
                   .head_dim = head_dim,
                   .out = out});
}

// Vectors [first, first + rows) of the pass against one tile.
void AttendTile(Pass& pass, int first, int rows, const Blocks& keys, const Blocks& values) {
  const Range* range = pass.range + first;
  const Range any = SeenByAny(range, rows);
  if (any.empty()) return;
  const int head_dim = pass.head_dim;
  const std::byte* q_rows = pass.q_rows + first * pass.q_stride;
  switch (pass.of_keys) {
    case KvProduct::kFloat:
      Score(rows, pass.q + first * head_dim, head_dim, keys, any.begin / kBlockTokens,
            (any.end + kBlockTokens - 1) / kBlockTokens, pass.scores);
      break;
    case KvProduct::kBF16:
      pass.bf16->passes->score({.rows = rows,
                                .x = q_rows,
                                .x_stride = pass.q_stride,
                                .head_dim = head_dim,
                                .keys = &keys,
                                .first_block = any.begin / kBlockTokens,
                                .end_block = (any.end + kBlockTokens - 1) / kBlockTokens,
                                .scores = pass.scores});
      break;
    case KvProduct::kInteger:
      ScoreIntegers(*pass.tiles, q_rows, pass.q_stride, rows, head_dim, pass.tile, pass.scores);
      break;
  }
  for (int r = 0; r < rows; ++r) {
    float* const scores = pass.scores + r * kTileTokens;
    if (range[r].empty()) {
      std::memset(scores, 0, kTileTokens * sizeof(float));
    } else {
      Normalize(pass, first + r, range[r], scores);
    }
  }
  float* out = pass.out + first * kPanelRows;
  switch (pass.of_values) {
    case KvProduct::kFloat:
      return MixFloats(rows, pass.scores, range, values, head_dim, out);
    case KvProduct::kBF16:
      return MixRounded(*pass.bf16, pass.scores, any, rows, values, head_dim, out);
    case KvProduct::kInteger:
      return MixIntegers(*pass.tiles, pass.scores, range, rows, head_dim, pass.tile, out);
  }
}

// True if a value of the tile may be multiplied with a weight of 0, and is no number: zero times infinity is
// not zero, and a value that a query does not see must not touch it.
bool ZerosSpoil(const Pass& pass, int count, const Blocks& values) {
  if (pass.of_values != KvProduct::kBF16) return false;
  const Range seen = SeenByAny(pass.range, count);
  for (int i = 0; i < count; ++i) {
    if (pass.range[i] != seen) return !BF16ValuesAreFinite(values, seen, pass.head_dim);
  }
  return false;
}

// All vectors of the pass against the tile whose ranges they have.
void AttendAll(Pass& pass, int count, tensor::DType key_dtype, tensor::DType value_dtype, Blocks keys,
               Blocks values) {
  const int head_dim = pass.head_dim;
  if (pass.of_keys == KvProduct::kInteger) UnpackKeys(key_dtype, keys, head_dim, pass.tile);
  if (pass.of_values == KvProduct::kInteger) UnpackValues(value_dtype, values, head_dim, pass.tile);
  const bool integers = pass.of_keys == KvProduct::kInteger && pass.of_values == KvProduct::kInteger;
  int together = kSideBySide;
  if (ZerosSpoil(pass, count, values)) {
    together = 1;
  } else if (pass.of_keys == KvProduct::kBF16 && pass.of_values == KvProduct::kBF16) {
    together = pass.bf16->rows;
  } else if (integers && pass.tiles->many_integers != nullptr) {
    together = kQueryTile;
  }
  for (int first = 0; first < count; first += together) {
    AttendTile(pass, first, HWY_MIN(together, count - first), keys, values);
    keys.ahead = values.ahead = false;  // once per tile is enough
  }
}

// Vector i of the pass as the tiles of its product want it.
void PrepareQuery(Pass& pass, int i) {
  const float* q = pass.q + i * pass.head_dim;
  std::byte* const row = pass.q_rows + i * pass.q_stride;
  if (pass.of_keys == KvProduct::kBF16) pass.bf16->round(q, pass.head_dim, row);
  if (pass.of_keys == KvProduct::kInteger) {
    const IntegerKernel& rows = *pass.tiles->integer_rows;
    rows.quantize(q, pass.head_dim, rows.largest(q, pass.head_dim), row);
  }
}

void AttendHead(const QueryTile& queries, const PagedHead& kv, const AttentionTiles& tiles) {
  Pass pass;
  pass.of_keys = KvProductOf(kv.key_dtype);
  pass.of_values = KvProductOf(kv.value_dtype);
  std::optional<FlushesDenormals> flushes;
  if (pass.of_keys == KvProduct::kBF16 || pass.of_values == KvProduct::kBF16) flushes.emplace();
  const int head_dim = queries.stored_dim;
  pass.head_dim = head_dim;
  pass.tiles = &tiles;
  const bool rounded = pass.of_keys == KvProduct::kBF16 && pass.of_values == KvProduct::kBF16;
  pass.bf16 = rounded && queries.count >= kManyVectors ? &tiles.bf16_many : &tiles.bf16;
  pass.q_stride = pass.of_keys == KvProduct::kBF16 ? BF16Blocks(head_dim) * pass.bf16->x_block_bytes
                                                   : tiles.integer_rows->row_bytes(head_dim);
  // Sums of rows of a panel that a head lacks are computed, but not read.
  if (pass.of_values == KvProduct::kInteger && head_dim % kPanelRows != 0)
    std::memset(pass.tile.values, 0, sizeof pass.tile.values);
  for (int d = 0; d < head_dim; d += kPanelRows) {
    std::memset(pass.out + OutPanel(d), 0, static_cast<size_t>(queries.count) * kPanelRows * sizeof(float));
  }
  const float scale = queries.scale * kLog2E;
  for (int i = 0; i < queries.count; ++i) {
    const int64_t vector = queries.first + i;
    const float* q =
        queries.q + vector / queries.group * queries.q_stride + vector % queries.group * queries.head_dim;
    for (int d = 0; d < queries.head_dim; ++d) pass.q[i * head_dim + d] = q[d] * scale;
    for (int d = queries.head_dim; d < head_dim; ++d) pass.q[i * head_dim + d] = 0;
    for (int lane = 0; lane < kSumLanes; ++lane) pass.sum[i * kSumLanes + lane] = 0;
    pass.max[i] = -std::numeric_limits<float>::infinity();
    if (queries.sinks != nullptr) {
      // The first of the scores: 2^(sink - maximum) is 1.
      pass.max[i] = queries.sinks[vector % queries.group] * kLog2E;
      pass.sum[i * kSumLanes] = 1;
    }
    if (kv.key_dtype == tensor::DType::kI4) kv::Rotate(pass.q + i * head_dim, head_dim);
    PrepareQuery(pass, i);
  }

  const auto position = [&](int i) { return queries.first_position + (queries.first + i) / queries.group; };
  const auto first_seen = [&](int i) {
    return queries.window > 0 ? HWY_MAX(int64_t{0}, position(i) - queries.window + 1) : int64_t{0};
  };
  const int64_t end = position(queries.count - 1) + 1;
  for (int64_t start = first_seen(0) / kTileTokens * kTileTokens; start < end; start += kTileTokens) {
    for (int i = 0; i < queries.count; ++i) {
      pass.range[i] = {static_cast<int>(HWY_MAX(int64_t{0}, first_seen(i) - start)),
                       static_cast<int>(HWY_MIN(int64_t{kTileTokens}, position(i) + 1 - start))};
    }
    // The sequence may end within the tile, or the next one; its last block then stands in for those that
    // aren't there: what it holds is masked.
    const int64_t last_block = (end - 1) / kBlockTokens;
    Blocks keys, values;
    keys.ahead = values.ahead = start + kTileTokens < end;
    for (int b = 0; b < kTileBlocks; ++b) {
      const std::byte* now = kv.block(HWY_MIN(start / kBlockTokens + b, last_block));
      const std::byte* next = kv.block(HWY_MIN(start / kBlockTokens + kTileBlocks + b, last_block));
      keys.now[b] = now + kv.key_offset;
      keys.next[b] = next + kv.key_offset;
      values.now[b] = now + kv.value_offset;
      values.next[b] = next + kv.value_offset;
    }
    AttendAll(pass, queries.count, kv.key_dtype, kv.value_dtype, keys, values);
  }

  for (int i = 0; i < queries.count; ++i) {
    Vec parts[kSumVectors];
    for (int v = 0; v < kSumVectors; ++v) parts[v] = hn::Load(F(), pass.sum + i * kSumLanes + v * kLanes);
    const float sum = SumOfParts(parts);
    HWY_ALIGN float from[kMaxHeadDim];
    for (int d = 0; d < head_dim; d += kPanelRows) {
      std::memcpy(from + d, pass.out + OutPanel(d) + i * kPanelRows,
                  static_cast<size_t>(HWY_MIN(kPanelRows, head_dim - d)) * sizeof(float));
    }
    if (kv.value_dtype == tensor::DType::kI4) kv::Rotate(from, head_dim);
    const int64_t vector = queries.first + i;
    float* out =
        queries.out + vector / queries.group * queries.out_stride + vector % queries.group * queries.head_dim;
    if (Interleaved(kv.value_dtype, head_dim)) {
      for (int d = 0; d < head_dim; ++d) {
        if (ColumnIn(d) < queries.head_dim) out[ColumnIn(d)] = from[d] / sum;
      }
    } else if (pass.of_values == KvProduct::kBF16) {
      // Weights of 0 can make 0 of a sum of -0, and whether there are any depends on the rows that share the
      // pass.
      for (int d = 0; d < queries.head_dim; ++d) out[d] = (from[d] + 0.0f) / sum;
    } else {
      for (int d = 0; d < queries.head_dim; ++d) out[d] = from[d] / sum;
    }
  }
}

}  // namespace

const BF16Attention& BF16OwnAttention() {
  static constexpr BF16Attention kPasses = {.score = &ScoreBF16, .mix = &MixBF16};
  return kPasses;
}

void AttendWith(const QueryTile& queries, const PagedHead& kv, const AttentionTiles& tiles) {
  AttendHead(queries, kv, tiles);
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {

std::string_view Numerics(KvProduct product) {
  switch (product) {
    case KvProduct::kFloat:
      return "";
    case KvProduct::kBF16:
      return FlushesDenormals::kWorks ? "cpu-kv-bf16x32/1" : "cpu-kv-bf16x32-gradual/1";
    case KvProduct::kInteger:
      return "cpu-kv-i8/1";
  }
  BATON_CHECK(false) << " a product of KV";
  return "";
}

namespace {

// Returns the passes that read the rows of `tiles`.
const BF16Attention& BF16AttentionFor(Isa isa, const BF16Tiles& tiles) {
#if defined(__x86_64__)
  if (&tiles == &kBF16DotTiles) return kBF16DotAttention;
#endif
  return BATON_FOR_ISA(isa, BF16OwnAttention)();
}

}  // namespace

AttentionTiles AttentionTilesFor(Isa isa) {
  const BF16Tiles& bf16 = BF16TilesFor(isa);
  AttentionTiles tiles = {.integer_rows = I8Format().IntegersFor(isa),
                          .integers = &I8TilesFor(isa),
                          .many_integers = nullptr,
                          .bf16 = {.rows = kSideBySide,
                                   .x_block_bytes = bf16.x_block_bytes,
                                   .round = bf16.round,
                                   .passes = &BF16AttentionFor(isa, bf16)},
                          .bf16_many = {}};
  tiles.bf16_many = tiles.bf16;
#if defined(__x86_64__)
  if (isa == Isa::kAmx) tiles.many_integers = &MultiplyByteTiles;
  if (isa == Isa::kAmx && BF16AmxIsBetter()) {
    tiles.bf16_many = {.rows = kQueryTile,
                       .x_block_bytes = kTileRowBytes,
                       .round = &BF16AmxRound,
                       .passes = &kBF16AmxAttention};
  }
#endif
  return tiles;
}

Attend AttendFor(Isa isa) { return BATON_FOR_ISA(isa, AttendWith); }

}  // namespace baton::kernels::cpu
#endif
