// The matrix product out = x * w^T + bias by float32 multiply-adds, one panel of w at a time, for every
// format that turns a column of a panel into floats.
//
// out[m][n] is one chain of fused multiply-adds over k = 0, 1, ... that begins with the bias, in a lane of
// its own. Nothing is summed up across lanes, threads or blocks of k, so its bits depend on row m of x alone;
// blocking over rows, columns and k changes where the running sum is kept and not its value. Included once
// per instruction set, inside of Highway's foreach_target.
#if defined(BATON_COMMON_KERNELS_CPU_PANEL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_COMMON_KERNELS_CPU_PANEL_PRODUCT_INL_H_
#undef BATON_COMMON_KERNELS_CPU_PANEL_PRODUCT_INL_H_
#else
#define BATON_COMMON_KERNELS_CPU_PANEL_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/format.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A format's columns: `Columns::Value` is what 64 of make a column, and
//   Columns::LoadPair(const Value* column, int first_row, Vec& low, Vec& high)
// gives the floats of rows [first_row, first_row + lanes) and of those 16 rows further on.

// At most 16 lanes: a vector never spans both halves of a group of 32 rows.
using F = hn::CappedTag<float, 16>;
using Vec = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));

// A pair is two vectors of consecutive panel rows, 16 rows apart: what one load of bfloat16 words holds.
constexpr int kPairs = kPanelRows / (2 * kLanes);
constexpr int kPairsPerGroup = 16 / kLanes;
constexpr int FirstRow(int pair) { return pair / kPairsPerGroup * 32 + pair % kPairsPerGroup * kLanes; }

// Columns of a panel in one go when several tiles share them: 32 KiB of weights, for the first-level cache.
template <class Columns>
constexpr int64_t kDepthBlock = (32 << 10) /
                                (kPanelRows * static_cast<int64_t>(sizeof(typename Columns::Value)));

// Rows of x per tile, and how many pairs go with them: enough independent chains to hide the latency of a
// multiply-add (4 cycles, 2 units), few enough for the registers (16 of them below AVX-512).
constexpr int kTileRows = 6;
// Rows that go through a panel together: their sums take 48 KiB.
constexpr int64_t kChunkRows = 192;
constexpr int TilePairs(int rows) {
  if (kLanes == 16) return kPairs;
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

// Where a tile's running sums come from.
enum class Begin { kZero, kBias, kGoOn };

// One block of a product: `rows` rows of x against `depth` columns of a panel.
template <class Columns>
struct Block {
  const float* x;
  int64_t x_stride;
  int rows;
  const typename Columns::Value* panel;
  int64_t depth;
  Begin begin;
  const float* bias;
  float* sums;  // [rows][kPanelRows]
  // Start of the panel's next block, to be prefetched while this one is computed, or null.
  const std::byte* ahead;
};

constexpr int64_t kLineBytes = 64;

// kRows rows of x against pairs [pair, pair + kTilePairs) of the block's columns; fetches kAhead cache lines
// for each.
template <class Columns, int kRows, int kTilePairs, int kAhead>
void Tile(const Block<Columns>& block, int pair, const std::byte* ahead) {
  const float* x = block.x;
  const int64_t x_stride = block.x_stride, depth = block.depth;
  const typename Columns::Value* panel = block.panel;
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
    const typename Columns::Value* column = panel + k * kPanelRows;
    for (int line = 0; line < kAhead; ++line)
      __builtin_prefetch(ahead + (k * kAhead + line) * kLineBytes, 0, 2);
    Vec w[kVectors];
    for (int p = 0; p < kTilePairs; ++p) Columns::LoadPair(column, first[2 * p], w[2 * p], w[2 * p + 1]);
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
template <class Columns, int kRows>
void TileRow(const Block<Columns>& block, int pass, int passes) {
  constexpr int kTilePairs = TilePairs(kRows);
  constexpr int kLines =
      kPanelRows * static_cast<int>(sizeof(typename Columns::Value)) / kLineBytes;  // of a column
  for (int pair = 0; pair < kPairs; pair += kTilePairs, ++pass) {
    if (block.ahead == nullptr || pass >= kLines) {
      Tile<Columns, kRows, kTilePairs, 0>(block, pair, nullptr);
    } else if (passes < kLines) {
      Tile<Columns, kRows, kTilePairs, 2>(block, pair, block.ahead + 2 * pass * block.depth * kLineBytes);
    } else {
      Tile<Columns, kRows, kTilePairs, 1>(block, pair, block.ahead + pass * block.depth * kLineBytes);
    }
  }
}

template <class Columns>
void Rows(const Block<Columns>& block, int pass, int passes) {
  switch (block.rows) {
    case 1:
      return TileRow<Columns, 1>(block, pass, passes);
    case 2:
      return TileRow<Columns, 2>(block, pass, passes);
    case 3:
      return TileRow<Columns, 3>(block, pass, passes);
    case 4:
      return TileRow<Columns, 4>(block, pass, passes);
    case 5:
      return TileRow<Columns, 5>(block, pass, passes);
    default:
      return TileRow<Columns, kTileRows>(block, pass, passes);
  }
}

// Up to kChunkRows rows: into sums [rows][kPanelRows].
template <class Columns>
void MultiplyChunk(const PanelProduct& job, const float* x, int64_t rows, const float* bias, float* sums) {
  const auto* panel = reinterpret_cast<const typename Columns::Value*>(job.panel);
  // As few tiles as it takes, of sizes that differ by one at most.
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int tile_passes = kPairs / TilePairs(static_cast<int>(rows / tiles));
  const auto passes = static_cast<int>(tiles) * tile_passes;
  const int64_t depth = passes == 1 ? job.depth : kDepthBlock<Columns>;
  for (int64_t k = 0; k < job.depth; k += depth) {
    const typename Columns::Value* columns = panel + k * kPanelRows;
    const bool last = k + depth >= job.depth;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = tile * rows / tiles;
      const Block<Columns> block = {
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

// So far ahead of what a product of one row reads is fetched, in each of its panels.
constexpr int64_t kFetchedAhead = 2048;

// One row of x against kPanels panels side by side, whose sums stay in registers.
template <class Columns, int kPanels>
void MultiplyRow(const PanelProduct& job) {
  constexpr int kVectors = 2 * kPairs;  // of a panel
  constexpr int kLines = kPanelRows * static_cast<int>(sizeof(typename Columns::Value)) / kLineBytes;
  const F f;
  const size_t bytes = sizeof(float) * static_cast<size_t>(job.width);
  HWY_ALIGN float values[kPanels * kPanelRows] = {};
  if (job.bias != nullptr) memcpy(values, job.bias, bytes);
  Vec sum[kPanels][kVectors];
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      sum[p][v] = hn::LoadU(f, values + p * kPanelRows + FirstRow(v / 2) + v % 2 * 16);
    }
  }
  const float* x = job.x;
  const int64_t depth = job.depth, panel_bytes = job.panel_bytes;
  const std::byte* column = job.panel;
  for (int64_t k = 0; k < depth; ++k, column += kLines * kLineBytes) {
    const Vec value = hn::Set(f, x[k]);
    for (int p = 0; p < kPanels; ++p) {
      const std::byte* of_panel = column + p * panel_bytes;
      for (int line = 0; line < kLines; ++line) {
        __builtin_prefetch(of_panel + kFetchedAhead + line * kLineBytes, 0, 3);
      }
      for (int pair = 0; pair < kPairs; ++pair) {
        Vec low, high;
        Columns::LoadPair(reinterpret_cast<const typename Columns::Value*>(of_panel), FirstRow(pair), low,
                          high);
        sum[p][2 * pair] = hn::MulAdd(value, low, sum[p][2 * pair]);
        sum[p][2 * pair + 1] = hn::MulAdd(value, high, sum[p][2 * pair + 1]);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[p][v], f, values + p * kPanelRows + FirstRow(v / 2) + v % 2 * 16);
    }
  }
  memcpy(job.out, values, bytes);
}

template <class Columns>
void MultiplyPanel(const PanelProduct& job) {
  if constexpr (kLanes == 16) {
    if (job.rows == 1) {
      return job.panels == kFloatPanelsAbreast ? MultiplyRow<Columns, kFloatPanelsAbreast>(job)
                                               : MultiplyRow<Columns, 1>(job);
    }
  }
  const size_t row_bytes = sizeof(float) * static_cast<size_t>(job.width);
  HWY_ALIGN float bias[kPanelRows] = {};
  if (job.bias != nullptr) memcpy(bias, job.bias, row_bytes);
  // Sums stay here until they are done: rows of the output may lie a multiple of 4 KiB apart, and crowd in
  // the caches.
  HWY_ALIGN float sums[kChunkRows * kPanelRows];
  for (int64_t first = 0; first < job.rows; first += kChunkRows) {
    const int64_t rows = HWY_MIN(kChunkRows, job.rows - first);
    MultiplyChunk<Columns>(job, job.x + first * job.x_stride, rows, job.bias != nullptr ? bias : nullptr,
                           sums);
    for (int64_t r = 0; r < rows; ++r)
      memcpy(job.out + (first + r) * job.out_stride, sums + r * kPanelRows, row_bytes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
