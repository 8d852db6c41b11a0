#include "common/kernels/cpu/gemm.h"

#include <cstddef>
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

// Columns of a panel in one go when several tiles share them: 32 KiB of weights, for the first-level cache.
template <typename Weight>
constexpr int64_t kDepthBlock = (32 << 10) / (kPanelRows * static_cast<int64_t>(sizeof(Weight)));

// Rows of x per tile, and how many pairs go with them: enough independent chains to hide the latency of a
// multiply-add (4 cycles, 2 units), few enough for the registers (16 of them below AVX-512).
constexpr int kTileRows = 6;
// Rows that go through a panel together: their sums take 48 KiB.
constexpr int64_t kChunkRows = 192;
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

// One block of a product: `rows` rows of x against `depth` columns of a panel.
template <typename Weight>
struct Block {
  const float* x;
  int64_t x_stride;
  int rows;
  const Weight* panel;
  int64_t depth;
  Begin begin;
  const float* bias;
  float* sums;  // [rows][kPanelRows]
  // What the panel's next block begins with: to be fetched from memory while this one is worked on, or null.
  const std::byte* ahead;
};

constexpr int64_t kLineBytes = 64;

// kRows rows of x against pairs [pair, pair + kTilePairs) of the block's columns; fetches kAhead cache lines
// for each.
template <typename Weight, int kRows, int kTilePairs, int kAhead>
void Tile(const Block<Weight>& block, int pair, const std::byte* ahead) {
  const float* x = block.x;
  const int64_t x_stride = block.x_stride, depth = block.depth;
  const Weight* panel = block.panel;
  const Begin begin = block.begin;
  const float* bias = block.bias;
  float* sums = block.sums;
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
      sum[r][v] = begin == Begin::kGoOn   ? hn::LoadU(f, sums + r * kPanelRows + first[v])
                  : begin == Begin::kBias ? hn::LoadU(f, bias + first[v])
                                          : hn::Zero(f);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Weight* column = panel + k * kPanelRows;
    for (int line = 0; line < kAhead; ++line)
      __builtin_prefetch(ahead + (k * kAhead + line) * kLineBytes, 0, 2);
    Vec w[kVectors];
    for (int p = 0; p < kTilePairs; ++p) LoadPair(column, first[2 * p], w[2 * p], w[2 * p + 1]);
    for (int r = 0; r < kRows; ++r) {
      const Vec value = hn::Set(f, x[r * x_stride + k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, w[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], f, sums + r * kPanelRows + first[v]);
  }
}

// All pairs of the panel. The passes over a block, `passes` in all, this one's first being `pass`, share the
// fetching.
template <typename Weight, int kRows>
void TileRow(const Block<Weight>& block, int pass, int passes) {
  constexpr int kTilePairs = TilePairs(kRows);
  constexpr int kLines = kPanelRows * static_cast<int>(sizeof(Weight)) / kLineBytes;  // of a column
  for (int pair = 0; pair < kPairs; pair += kTilePairs, ++pass) {
    if (block.ahead == nullptr || pass >= kLines) {
      Tile<Weight, kRows, kTilePairs, 0>(block, pair, nullptr);
    } else if (passes < kLines) {
      Tile<Weight, kRows, kTilePairs, 2>(block, pair, block.ahead + 2 * pass * block.depth * kLineBytes);
    } else {
      Tile<Weight, kRows, kTilePairs, 1>(block, pair, block.ahead + pass * block.depth * kLineBytes);
    }
  }
}

template <typename Weight>
void Rows(const Block<Weight>& block, int pass, int passes) {
  switch (block.rows) {
    case 1:
      return TileRow<Weight, 1>(block, pass, passes);
    case 2:
      return TileRow<Weight, 2>(block, pass, passes);
    case 3:
      return TileRow<Weight, 3>(block, pass, passes);
    case 4:
      return TileRow<Weight, 4>(block, pass, passes);
    case 5:
      return TileRow<Weight, 5>(block, pass, passes);
    default:
      return TileRow<Weight, kTileRows>(block, pass, passes);
  }
}

// Up to kChunkRows rows: into sums [rows][kPanelRows].
template <typename Weight>
void MultiplyChunk(const PanelProduct& job, const float* x, int64_t rows, const float* bias, float* sums) {
  const auto* panel = static_cast<const Weight*>(job.panel);
  // As few tiles as it takes, of sizes that differ by one at most.
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int tile_passes = kPairs / TilePairs(static_cast<int>(rows / tiles));
  const auto passes = static_cast<int>(tiles) * tile_passes;
  const int64_t depth = passes == 1 ? job.depth : kDepthBlock<Weight>;
  for (int64_t k = 0; k < job.depth; k += depth) {
    const Weight* columns = panel + k * kPanelRows;
    const bool last = k + depth >= job.depth;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = tile * rows / tiles;
      const Block<Weight> block = {
          .x = x + first * job.x_stride + k,
          .x_stride = job.x_stride,
          .rows = static_cast<int>((tile + 1) * rows / tiles - first),
          .panel = columns,
          .depth = HWY_MIN(depth, job.depth - k),
          .begin = k > 0             ? Begin::kGoOn
                   : bias != nullptr ? Begin::kBias
                                     : Begin::kZero,
          .bias = bias,
          .sums = sums + first * kPanelRows,
          .ahead = last ? nullptr : reinterpret_cast<const std::byte*>(columns + depth * kPanelRows)};
      Rows(block, static_cast<int>(tile) * tile_passes, passes);
    }
  }
}

template <typename Weight>
void Multiply(const PanelProduct& job) {
  const size_t row_bytes = sizeof(float) * static_cast<size_t>(job.width);
  HWY_ALIGN float bias[kPanelRows] = {};
  if (job.bias != nullptr) memcpy(bias, job.bias, row_bytes);
  // Sums stay here until they are done: rows of the output may lie a multiple of 4 KiB apart, and crowd in
  // the caches.
  HWY_ALIGN float sums[kChunkRows * kPanelRows];
  for (int64_t first = 0; first < job.rows; first += kChunkRows) {
    const int64_t rows = HWY_MIN(kChunkRows, job.rows - first);
    MultiplyChunk<Weight>(job, job.x + first * job.x_stride, rows, job.bias != nullptr ? bias : nullptr,
                          sums);
    for (int64_t r = 0; r < rows; ++r)
      memcpy(job.out + (first + r) * job.out_stride, sums + r * kPanelRows, row_bytes);
  }
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
