#include "common/kernels/cpu/attention.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

#include "common/kernels/cpu/attention_tile.h"
#include "common/kernels/cpu/integer_attention.h"
#include "common/kv/store/kv_codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "common/kernels/cpu/integer_attention-inl.h"
#include "common/kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

using Range = TokenRange;
using Blocks = TileOfBlocks;
static_assert(kBlockTokens == kSumLanes);

// Query vectors whose chains run side by side, and the blocks or output vectors that go with them: as in
// panel_product-inl.h, enough to hide latency, few enough for the registers.
constexpr int kSideBySide = 6;
constexpr int BlocksAtOnce(int rows) { return kLanes == 16 || rows == 1 ? 4 : rows == 2 ? 2 : 1; }
constexpr int VectorsAtOnce(int rows) { return kLanes == 16 || rows <= 2 ? 4 : 2; }

// Block b as `Codec` keeps it (kv_codec.h).
template <class Codec>
const typename Codec::Stored* StoredIn(const std::byte* block) {
  return reinterpret_cast<const typename Codec::Stored*>(block);
}

template <typename T>
HWY_INLINE void FetchLine(const T* from) {
  __builtin_prefetch(from, 0, 2);
}

// scores[r][16 b + t] = sum over d of q[r][d] * keys[b][d][t], in order of d; b from first_block on.
template <class Codec, int kRows, int kBlocks, bool kAhead>
void ScoreBlocks(const float* q, int head_dim, const Blocks& keys, int first_block, float* scores) {
  constexpr int kVectors = kBlocks * kSumVectors;
  const F f;
  const typename Codec::Stored *now[kBlocks], *next[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    now[b] = StoredIn<Codec>(keys.now[first_block + b]);
    next[b] = StoredIn<Codec>(keys.next[first_block + b]);
  }
  Vec sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(f);
  }
  for (int d = 0; d < head_dim; ++d) {
    Vec key[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      key[v] = LoadFloats(f, now[v / kSumVectors] + d * kBlockTokens + v % kSumVectors * kLanes);
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

template <class Codec, int kRows>
void ScoreRows(const float* q, int head_dim, const Blocks& keys, int first_block, int end_block,
               float* scores) {
  constexpr int kBlocks = BlocksAtOnce(kRows);
  for (int b = first_block / kBlocks * kBlocks; b < end_block; b += kBlocks) {
    keys.ahead ? ScoreBlocks<Codec, kRows, kBlocks, true>(q, head_dim, keys, b, scores)
               : ScoreBlocks<Codec, kRows, kBlocks, false>(q, head_dim, keys, b, scores);
  }
}

// Of `rows` vectors (1 .. kSideBySide) against blocks [first_block, end_block) of a tile.
template <class Codec>
void Score(int rows, const float* q, int head_dim, const Blocks& keys, int first_block, int end_block,
           float* scores) {
  switch (rows) {
    case 1:
      return ScoreRows<Codec, 1>(q, head_dim, keys, first_block, end_block, scores);
    case 2:
      return ScoreRows<Codec, 2>(q, head_dim, keys, first_block, end_block, scores);
    case 3:
      return ScoreRows<Codec, 3>(q, head_dim, keys, first_block, end_block, scores);
    case 4:
      return ScoreRows<Codec, 4>(q, head_dim, keys, first_block, end_block, scores);
    case 5:
      return ScoreRows<Codec, 5>(q, head_dim, keys, first_block, end_block, scores);
    default:
      return ScoreRows<Codec, kSideBySide>(q, head_dim, keys, first_block, end_block, scores);
  }
}

// A quantized query: the head of a row, and integers of up to 16 bits.
constexpr int64_t kMostQueryBytes = (sizeof(IntegerRowHead) + 2 * kMaxHeadDim + 63) / 64 * 64;

// The passes of one precision of keys, and of one of values.
using ScorePass = void (*)(int rows, const float* q, int head_dim, const Blocks& keys, int first_block,
                           int end_block, float* scores);
using MixPass = void (*)(int rows, const float* weights, Range range, const Blocks& values, int head_dim,
                         float* out);

// One pass of a query tile over its KV. About 180 KB, on the stack of the thread that runs it.
struct Pass {
  // [count][head_dim], scaled for base 2
  HWY_ALIGN float q[kQueryTile * kMaxHeadDim];
  HWY_ALIGN float out[kQueryTile * kMaxHeadDim];
  // Of the vectors at work: scores, then probabilities.
  HWY_ALIGN float scores[kSideBySide * kTileTokens];
  HWY_ALIGN float sum[kQueryTile * kSumLanes];
  float max[kQueryTile];
  Range range[kQueryTile];
  int head_dim;
  // Null: products are of integers.
  ScorePass score = nullptr;
  MixPass mix = nullptr;
  const IntegerProducts* integers;
  // Of these only: q as an IntegerKernel quantizes rows, and the tile of KV that is at work.
  HWY_ALIGN std::byte q_integers[kQueryTile * kMostQueryBytes];
  int64_t q_stride;
  IntegerTile tile;
};

// Turns a vector's scores into exp(score - running maximum), zero outside of `range`, and brings its sum and
// output to the new maximum.
void Normalize(Pass& pass, int query, Range range, float* scores) {
  const F f;
  const Vec lowest = hn::Set(f, -std::numeric_limits<float>::infinity());
  Vec tile_max = lowest;
  for (int t = 0; t < kTileTokens; t += kLanes) {
    const Vec token = hn::Iota(f, static_cast<float>(t));
    const auto seen = hn::And(hn::Ge(token, hn::Set(f, static_cast<float>(range.begin))),
                              hn::Lt(token, hn::Set(f, static_cast<float>(range.end))));
    const Vec score = hn::IfThenElse(seen, hn::Load(f, scores + t), lowest);
    hn::Store(score, f, scores + t);
    tile_max = hn::Max(tile_max, score);
  }
  const float old_max = pass.max[query];
  const float tile_top = hn::GetLane(hn::MaxOfLanes(f, tile_max));
  const float new_max = old_max > tile_top ? old_max : tile_top;
  pass.max[query] = new_max;
  const Vec top = hn::Set(f, new_max);
  const Vec shrink = Exp2(f, hn::Sub(hn::Set(f, old_max), top));
  float* sum = pass.sum + query * kSumLanes;
  for (int v = 0; v < kSumVectors; ++v) {
    Vec part = hn::Mul(hn::Load(f, sum + v * kLanes), shrink);
    for (int b = 0; b < kTileBlocks; ++b) {
      float* at = scores + b * kBlockTokens + v * kLanes;
      const Vec weight = Exp2(f, hn::Sub(hn::Load(f, at), top));
      hn::Store(weight, f, at);
      part = hn::Add(part, weight);
    }
    hn::Store(part, f, sum + v * kLanes);
  }
  if (hn::GetLane(shrink) == 1.0f) return;
  float* out = pass.out + query * pass.head_dim;
  int d = 0;
  for (; d + kLanes <= pass.head_dim; d += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(f, out + d), shrink), f, out + d);
  for (; d < pass.head_dim; ++d) out[d] *= hn::GetLane(shrink);
}

// out[r][0 .. kVectors * lanes) += sum over tokens t in `range`, in order, of weights[r][t] * values[t /
// 16][t % 16].
template <class D, class Codec, int kRows, int kVectors, bool kAhead>
void MixColumns(const float* weights, Range range, const Blocks& values, int column, int head_dim,
                float* out) {
  const D f;
  constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
  hn::Vec<D> sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(f, out + r * head_dim + column + v * kWidth);
  }
  for (int t = range.begin; t < range.end; ++t) {
    const int offset = t % kBlockTokens * head_dim + column;
    const auto* token = StoredIn<Codec>(values.now[t / kBlockTokens]) + offset;
    hn::Vec<D> value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = LoadFloats(f, token + v * kWidth);
    if (kAhead) {
      for (int v = 0; v < kVectors; ++v)
        FetchLine(StoredIn<Codec>(values.next[t / kBlockTokens]) + offset + v * kWidth);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(f, weights[r * kTileTokens + t]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, value[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], f, out + r * head_dim + column + v * kWidth);
  }
}

template <class Codec, int kRows, bool kAhead>
void MixRows(const float* weights, Range range, const Blocks& values, int head_dim, float* out) {
  constexpr int kVectors = VectorsAtOnce(kRows);
  int column = 0;
  for (; column + kVectors * kLanes <= head_dim; column += kVectors * kLanes) {
    MixColumns<F, Codec, kRows, kVectors, kAhead>(weights, range, values, column, head_dim, out);
  }
  for (; column + kLanes <= head_dim; column += kLanes) {
    MixColumns<F, Codec, kRows, 1, kAhead>(weights, range, values, column, head_dim, out);
  }
  if (column < head_dim) {  // 8 columns are left, of vectors of 16
    using Half = hn::CappedTag<float, 8>;
    MixColumns<Half, Codec, kRows, 1, kAhead>(weights, range, values, column, head_dim, out);
  }
}

template <class Codec, bool kAhead>
void MixAny(int rows, const float* weights, Range range, const Blocks& values, int head_dim, float* out) {
  switch (rows) {
    case 1:
      return MixRows<Codec, 1, kAhead>(weights, range, values, head_dim, out);
    case 2:
      return MixRows<Codec, 2, kAhead>(weights, range, values, head_dim, out);
    case 3:
      return MixRows<Codec, 3, kAhead>(weights, range, values, head_dim, out);
    case 4:
      return MixRows<Codec, 4, kAhead>(weights, range, values, head_dim, out);
    case 5:
      return MixRows<Codec, 5, kAhead>(weights, range, values, head_dim, out);
    default:
      return MixRows<Codec, kSideBySide, kAhead>(weights, range, values, head_dim, out);
  }
}

// Of `rows` vectors (1 .. kSideBySide), the tokens of `range`, which all of them see.
template <class Codec>
void Mix(int rows, const float* weights, Range range, const Blocks& values, int head_dim, float* out) {
  if (range.empty()) return;
  values.ahead ? MixAny<Codec, true>(rows, weights, range, values, head_dim, out)
               : MixAny<Codec, false>(rows, weights, range, values, head_dim, out);
}

// Vectors [first, first + rows) of the pass against one tile.
void AttendTile(Pass& pass, int first, int rows, const Blocks& keys, const Blocks& values) {
  const Range* range = pass.range + first;
  // What any of them sees, and what all of them see.
  Range any = range[0], all = range[0];
  for (int r = 1; r < rows; ++r) {
    any = {HWY_MIN(any.begin, range[r].begin), HWY_MAX(any.end, range[r].end)};
    all = {HWY_MAX(all.begin, range[r].begin), HWY_MIN(all.end, range[r].end)};
  }
  if (any.empty()) return;
  const int head_dim = pass.head_dim;
  if (pass.score != nullptr) {
    pass.score(rows, pass.q + first * head_dim, head_dim, keys, any.begin / kBlockTokens,
               (any.end + kBlockTokens - 1) / kBlockTokens, pass.scores);
  } else {
    ScoreIntegers(*pass.integers, pass.q_integers + first * pass.q_stride, pass.q_stride, rows, head_dim,
                  pass.tile, pass.scores);
  }
  for (int r = 0; r < rows; ++r) {
    if (!range[r].empty()) Normalize(pass, first + r, range[r], pass.scores + r * kTileTokens);
  }
  float* out = pass.out + first * head_dim;
  if (pass.mix == nullptr) {
    MixIntegers(*pass.integers, pass.scores, range, rows, head_dim, pass.tile, out);
    return;
  }
  // Tokens seen by all go through together; the ends, which only some see, one query at a time, because a
  // value that a query doesn't see must not touch it: zero times infinity is not zero.
  Blocks unfetched = values;
  unfetched.ahead = false;
  const auto mix_one = [&](int r, Range part) {
    pass.mix(1, pass.scores + r * kTileTokens, part, unfetched, head_dim, out + r * head_dim);
  };
  if (all.empty()) {
    for (int r = 0; r < rows; ++r) mix_one(r, range[r]);
    return;
  }
  for (int r = 0; r < rows; ++r) mix_one(r, {range[r].begin, all.begin});
  pass.mix(rows, pass.scores, all, values, head_dim, out);
  for (int r = 0; r < rows; ++r) mix_one(r, {all.end, range[r].end});
}

// Of keys or values that are floats: f32 or bf16.
template <class Visit>
void WithCodec(tensor::DType dtype, const Visit& visit) {
  if (IntegerAttention(dtype)) return;
  dtype == tensor::DType::kBF16 ? visit(kv::KvCodec<tensor::DType::kBF16>())
                                : visit(kv::KvCodec<tensor::DType::kF32>());
}

// Vector i of the pass for products of integers.
void QuantizeQuery(Pass& pass, int i) {
  const IntegerKernel& rows = *pass.integers->rows;
  const float* q = pass.q + i * pass.head_dim;
  rows.quantize(q, pass.head_dim, rows.largest(q, pass.head_dim), pass.q_integers + i * pass.q_stride);
}

void AttendHead(const QueryTile& queries, const PagedHead& kv, const IntegerProducts& integers) {
  Pass pass;
  WithCodec(kv.key_dtype, [&](auto codec) { pass.score = &Score<decltype(codec)>; });
  WithCodec(kv.value_dtype, [&](auto codec) { pass.mix = &Mix<decltype(codec)>; });
  const int head_dim = queries.stored_dim;
  pass.head_dim = head_dim;
  pass.integers = &integers;
  pass.q_stride = integers.rows->row_bytes(head_dim);
  // Of a panel that a head does not fill, sums are computed, but not read.
  if (pass.mix == nullptr && head_dim % kPanelRows != 0)
    std::memset(pass.tile.values, 0, sizeof pass.tile.values);
  const float scale = queries.scale * kLog2E;
  for (int i = 0; i < queries.count; ++i) {
    const int64_t vector = queries.first + i;
    const float* q =
        queries.q + vector / queries.group * queries.q_stride + vector % queries.group * queries.head_dim;
    for (int d = 0; d < queries.head_dim; ++d) pass.q[i * head_dim + d] = q[d] * scale;
    for (int d = queries.head_dim; d < head_dim; ++d) pass.q[i * head_dim + d] = 0;
    for (int d = 0; d < head_dim; ++d) pass.out[i * head_dim + d] = 0;
    for (int lane = 0; lane < kSumLanes; ++lane) pass.sum[i * kSumLanes + lane] = 0;
    pass.max[i] = -std::numeric_limits<float>::infinity();
    if (queries.sinks != nullptr) {
      // The first of the scores: 2^(sink - maximum) is 1.
      pass.max[i] = queries.sinks[vector % queries.group] * kLog2E;
      pass.sum[i * kSumLanes] = 1;
    }
    if (kv.key_dtype == tensor::DType::kI4) kv::Rotate(pass.q + i * head_dim, head_dim);
    if (pass.score == nullptr) QuantizeQuery(pass, i);
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
    for (int b = 0; b < kTileBlocks; ++b) {
      const std::byte* now = kv.block(HWY_MIN(start / kBlockTokens + b, last_block));
      const std::byte* next = kv.block(HWY_MIN(start / kBlockTokens + kTileBlocks + b, last_block));
      keys.now[b] = now + kv.key_offset;
      keys.next[b] = next + kv.key_offset;
      values.now[b] = now + kv.value_offset;
      values.next[b] = next + kv.value_offset;
    }
    if (pass.score == nullptr || pass.mix == nullptr) {
      keys.ahead = values.ahead = start + kTileTokens < end;
      if (pass.score == nullptr) UnpackKeys(kv.key_dtype, keys, head_dim, pass.tile);
      if (pass.mix == nullptr) UnpackValues(kv.value_dtype, values, head_dim, pass.tile);
    }
    for (int first = 0; first < queries.count; first += kSideBySide) {
      // Once per tile is enough.
      keys.ahead = values.ahead = first == 0 && start + kTileTokens < end;
      AttendTile(pass, first, HWY_MIN(kSideBySide, queries.count - first), keys, values);
    }
  }

  for (int i = 0; i < queries.count; ++i) {
    Vec parts[kSumVectors];
    for (int v = 0; v < kSumVectors; ++v) parts[v] = hn::Load(F(), pass.sum + i * kSumLanes + v * kLanes);
    const float sum = SumOfParts(parts);
    if (kv.value_dtype == tensor::DType::kI4) kv::Rotate(pass.out + i * head_dim, head_dim);
    const int64_t vector = queries.first + i;
    float* out =
        queries.out + vector / queries.group * queries.out_stride + vector % queries.group * queries.head_dim;
    const float* from = pass.out + i * head_dim;
    if (Interleaved(kv.value_dtype, head_dim)) {
      for (int d = 0; d < head_dim; ++d) {
        if (ColumnIn(d) < queries.head_dim) out[ColumnIn(d)] = from[d] / sum;
      }
    } else {
      for (int d = 0; d < queries.head_dim; ++d) out[d] = from[d] / sum;
    }
  }
}

}  // namespace

void AttendWith(const QueryTile& queries, const PagedHead& kv, const IntegerProducts& integers) {
  AttendHead(queries, kv, integers);
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {

const IntegerProducts& IntegerProductsFor(Isa isa) {
  static const auto products = [] {
    std::array<IntegerProducts, 4> all;
    for (const Isa each : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni}) {
      all[static_cast<size_t>(each)] = {.rows = I8Format().IntegersFor(each), .tiles = &I8TilesFor(each)};
    }
    return all;
  }();
  return products[static_cast<size_t>(isa)];
}

Attend AttendFor(Isa isa) { return BATON_FOR_ISA(isa, AttendWith); }

}  // namespace baton::kernels::cpu
#endif
