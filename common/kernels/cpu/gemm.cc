#include "common/kernels/cpu/gemm.h"

#include <cstring>

#include "common/kernels/cpu/panels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/kernels/cpu/gemm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: a vector never spans both halves of a group of 32 rows.
using F = hn::CappedTag<float, 16>;
using U = hn::Repartition<uint32_t, F>;
using Vec = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));

// A pair is two vectors of consecutive panel rows, 16 rows apart: what one load of bfloat16 words holds.
constexpr int kPairs = kPanelRows / (2 * kLanes);
constexpr int kPairsPerGroup = 16 / kLanes;
constexpr int FirstRow(int pair) { return pair / kPairsPerGroup * 32 + pair % kPairsPerGroup * kLanes; }

// Columns of a panel in one go when several tiles share them: 32 KiB of bfloat16, for the first-level cache.
constexpr int64_t kDepthBlock = 256;

// Rows of x per tile, and how many pairs go with them: enough independent chains to hide the latency of a
// multiply-add (4 cycles, 2 units), few enough for the registers (16 of them below AVX-512).
constexpr int kTileRows = 6;
constexpr int TilePairs(int rows) {
  if (kLanes == 16) return kPairs;
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

HWY_INLINE void LoadPair(const float* column, int first_row, Vec& low, Vec& high) {
  low = hn::LoadU(F(), column + first_row);
  high = hn::LoadU(F(), column + first_row + 16);
}

HWY_INLINE void LoadPair(const uint16_t* column, int first_row, Vec& low, Vec& high) {
  const int word = first_row / 32 * 16 + first_row % 16;
  const auto words = hn::LoadU(U(), reinterpret_cast<const uint32_t*>(column) + word);
  low = hn::BitCast(F(), hn::ShiftLeft<16>(words));
  high = hn::BitCast(F(), hn::And(words, hn::Set(U(), 0xFFFF0000u)));
}

// Where a tile's running sums come from.
enum class Begin { kZero, kBias, kGoOn };

// kRows rows of x against pairs [pair, pair + kTilePairs) of the panel's columns [0, depth).
template <typename Weight, int kRows, int kTilePairs>
void Tile(const float* x, int64_t x_stride, const Weight* panel, int64_t depth, int pair, Begin begin,
          const float* bias, float* out, int64_t out_stride) {
  constexpr int kVectors = 2 * kTilePairs;
  const F f;
  int first[kVectors];
  for (int p = 0; p < kTilePairs; ++p) {
    first[2 * p] = FirstRow(pair + p);
    first[2 * p + 1] = first[2 * p] + 16;
  }
  Vec sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = begin == Begin::kGoOn   ? hn::LoadU(f, out + r * out_stride + first[v])
                  : begin == Begin::kBias ? hn::LoadU(f, bias + first[v])
                                          : hn::Zero(f);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Weight* column = panel + k * kPanelRows;
    Vec w[kVectors];
    for (int p = 0; p < kTilePairs; ++p) LoadPair(column, first[2 * p], w[2 * p], w[2 * p + 1]);
    for (int r = 0; r < kRows; ++r) {
      const Vec value = hn::Set(f, x[r * x_stride + k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, w[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], f, out + r * out_stride + first[v]);
  }
}

template <typename Weight, int kRows>
void TileRow(const float* x, int64_t x_stride, const Weight* panel, int64_t depth, Begin begin,
             const float* bias, float* out, int64_t out_stride) {
  constexpr int kTilePairs = TilePairs(kRows);
  for (int pair = 0; pair < kPairs; pair += kTilePairs) {
    Tile<Weight, kRows, kTilePairs>(x, x_stride, panel, depth, pair, begin, bias, out, out_stride);
  }
}

template <typename Weight>
void Rows(int rows, const float* x, int64_t x_stride, const Weight* panel, int64_t depth, Begin begin,
          const float* bias, float* out, int64_t out_stride) {
  switch (rows) {
    case 1:
      return TileRow<Weight, 1>(x, x_stride, panel, depth, begin, bias, out, out_stride);
    case 2:
      return TileRow<Weight, 2>(x, x_stride, panel, depth, begin, bias, out, out_stride);
    case 3:
      return TileRow<Weight, 3>(x, x_stride, panel, depth, begin, bias, out, out_stride);
    case 4:
      return TileRow<Weight, 4>(x, x_stride, panel, depth, begin, bias, out, out_stride);
    case 5:
      return TileRow<Weight, 5>(x, x_stride, panel, depth, begin, bias, out, out_stride);
    default:
      return TileRow<Weight, kTileRows>(x, x_stride, panel, depth, begin, bias, out, out_stride);
  }
}

template <typename Weight>
void MultiplyWide(const PanelProduct& job) {
  const auto* panel = static_cast<const Weight*>(job.panel);
  // As few tiles as it takes, of sizes that differ by one at most.
  const int64_t tiles = (job.rows + kTileRows - 1) / kTileRows;
  const bool one_pass = tiles == 1 && TilePairs(static_cast<int>(job.rows)) == kPairs;
  const int64_t block = one_pass ? job.depth : kDepthBlock;
  for (int64_t k = 0; k < job.depth; k += block) {
    const int64_t depth = HWY_MIN(block, job.depth - k);
    const Begin begin = k > 0 ? Begin::kGoOn : job.bias != nullptr ? Begin::kBias : Begin::kZero;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = tile * job.rows / tiles;
      const auto rows = static_cast<int>((tile + 1) * job.rows / tiles - first);
      Rows<Weight>(rows, job.x + first * job.x_stride + k, job.x_stride, panel + k * kPanelRows, depth, begin,
                   job.bias, job.out + first * job.out_stride, job.out_stride);
    }
  }
}

// A panel that the matrix fills in part is computed in full, beside the output, and copied.
template <typename Weight>
void MultiplyNarrow(const PanelProduct& job) {
  float bias[kPanelRows] = {};
  if (job.bias != nullptr) memcpy(bias, job.bias, sizeof(float) * static_cast<size_t>(job.width));
  float out[kTileRows * kPanelRows];
  PanelProduct part = job;
  part.bias = job.bias != nullptr ? bias : nullptr;
  part.out = out;
  part.out_stride = kPanelRows;
  part.width = kPanelRows;
  for (int64_t first = 0; first < job.rows; first += kTileRows) {
    part.x = job.x + first * job.x_stride;
    part.rows = HWY_MIN(int64_t{kTileRows}, job.rows - first);
    MultiplyWide<Weight>(part);
    for (int64_t r = 0; r < part.rows; ++r) {
      memcpy(job.out + (first + r) * job.out_stride, out + r * kPanelRows,
             sizeof(float) * static_cast<size_t>(job.width));
    }
  }
}

template <typename Weight>
void Multiply(const PanelProduct& job) {
  job.width == kPanelRows ? MultiplyWide<Weight>(job) : MultiplyNarrow<Weight>(job);
}

}  // namespace

const GemmTable& Gemm() {
  static constexpr GemmTable table = {&Multiply<float>, &Multiply<uint16_t>};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {

const GemmTable& GemmFor(Isa isa) {
#if HWY_TARGETS & HWY_AVX3
  if (isa == Isa::kAvx512) return N_AVX3::Gemm();
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa == Isa::kAvx2) return N_AVX2::Gemm();
#endif
  return HWY_STATIC_DISPATCH(Gemm)();
}

}  // namespace baton::kernels::cpu
#endif
