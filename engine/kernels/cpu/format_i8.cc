// int8 weights with one float scale per row, multiplied as integers (integer_product.h): tiles for every
// instruction set, packing, and the choice of tiles.
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/format.h"
#include "engine/kernels/cpu/i8_tiles.h"
#include "engine/kernels/cpu/integer_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/format_i8.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Words = hn::RebindToSigned<Floats>;
constexpr int kWords = static_cast<int>(hn::MaxLanes(Words()));

// A step of x is two words of two integers of 16 bits: columns 0 and 2, then 1 and 3. Bytes 0 and 2 of a word
// of weights are masked out, bytes 1 and 3 shifted down, and each pair multiplied and added in 32 bits, where
// nothing saturates (two products of bytes do not fit in 16).
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR

using Halves = hn::Repartition<int16_t, Words>;

// sum + a[2i] b[2i] + a[2i + 1] b[2i + 1]: VPMADDWD, one instruction on every x86.
HWY_INLINE hn::Vec<Words> AddPairs(hn::Vec<Words> sum, hn::Vec<Halves> a, hn::Vec<Halves> b) {
  hn::Vec<Words> unused = hn::Zero(Words());
  return hn::ReorderWidenMulAccumulate(Words(), a, b, sum, unused);
}

// Two integers of x, in every pair of lanes.
HWY_INLINE hn::Vec<Halves> PairAt(const std::byte* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof pair);
  return hn::BitCast(Halves(), hn::Set(Words(), pair));
}

template <int kRows, int kVectors>
void TileOf(const I8Tile& tile, int first_row) {
  const Words words;
  const Halves halves;
  const hn::RebindToUnsigned<Halves> unsigned_halves;
  hn::Vec<Words> sum[kRows][kVectors];
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::LoadU(words, tile.sums + r * kPanelRows + first_row + v * kWords);
    }
  }
  const auto low_bytes = hn::Set(unsigned_halves, uint16_t{0x00FF});
  const std::byte* panel = tile.panel + first_row * kI8Step;
  const std::byte* x = tile.x;
  const int64_t x_stride = tile.x_stride;
  // The first of the passes over these steps fetches.
  const std::byte* ahead = tile.ahead;
  const int lines = first_row == 0 ? tile.lines : 0;
  for (int64_t s = 0; s < tile.steps; ++s) {
    hn::Vec<Halves> even[kVectors], odd[kVectors];
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      const auto bytes =
          hn::LoadU(unsigned_halves, reinterpret_cast<const uint16_t*>(panel + v * kWords * kI8Step));
      even[v] = hn::BitCast(halves, hn::And(bytes, low_bytes));
      odd[v] = hn::BitCast(halves, hn::ShiftRight<8>(bytes));
    }
    BATON_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      const auto x_even = PairAt(x + r * x_stride), x_odd = PairAt(x + r * x_stride + sizeof(int32_t));
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = AddPairs(AddPairs(sum[r][v], even[v], x_even), odd[v], x_odd);
      }
    }
    for (int line = 0; line < lines; ++line) __builtin_prefetch(ahead + line * kI8LineBytes, 0, 2);
    ahead += lines * kI8LineBytes;
    panel += kI8StepBytes;
    x += kI8Step * sizeof(int16_t);
  }
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    BATON_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], words, tile.sums + r * kPanelRows + first_row + v * kWords);
    }
  }
}

template <int kRows>
void Tile(const I8Tile& tile) {
  // As many sums as the registers hold beside weights: 32 of them with AVX-512, else 16.
  constexpr int kVectors = kWords == 16 || kRows == 1 ? 4 : 2;
  for (int first = 0; first < kPanelRows; first += kVectors * kWords) TileOf<kRows, kVectors>(tile, first);
}

#else

template <int kRows>
void Tile(const I8Tile& tile) {
  for (int r = 0; r < kRows; ++r) {
    int32_t* sums = tile.sums + r * kPanelRows;
    for (int64_t s = 0; s < tile.steps; ++s) {
      int16_t x[kI8Step];
      std::memcpy(x, tile.x + r * tile.x_stride + s * static_cast<int64_t>(sizeof x), sizeof x);
      const auto* bytes = reinterpret_cast<const uint8_t*>(tile.panel) + s * kI8StepBytes;
      for (int n = 0; n < kPanelRows; ++n) {
        const uint8_t* w = bytes + n * kI8Step;
        sums[n] += w[0] * x[0] + w[2] * x[1] + w[1] * x[2] + w[3] * x[3];
      }
    }
  }
}

#endif

}  // namespace

void I8Tile1(const I8Tile& tile) { Tile<1>(tile); }
void I8Tile2(const I8Tile& tile) { Tile<2>(tile); }
void I8Tile3(const I8Tile& tile) { Tile<3>(tile); }
void I8Tile4(const I8Tile& tile) { Tile<4>(tile); }

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {
namespace {

// Steps of a panel in one go when several tiles share them: 16 KiB of weights, half of a first-level cache.
constexpr int64_t kSliceSteps = 64;

template <Isa isa>
const I8Tiles& TilesFor() {
  static constexpr I8Tiles kPairs = {.rows = 4,
                                     .step_bytes = kI8Step * sizeof(int16_t),
                                     .by_rows = {BATON_FOR_ISA(isa, I8Tile1), BATON_FOR_ISA(isa, I8Tile2),
                                                 BATON_FOR_ISA(isa, I8Tile3), BATON_FOR_ISA(isa, I8Tile4)}};
#if defined(__x86_64__)
  if constexpr (isa >= Isa::kAvx512Vnni) return kI8VnniTiles;
#endif
  return kPairs;
}

// Rows of a product from row `first` on, all steps from step `first_step` on, added to sums [rows][64].
void AddSteps(const I8Tiles& tiles, const PanelProduct& job, int64_t first, int64_t rows, int64_t first_step,
              int32_t* sums) {
  const std::byte* x = job.prepared.data + first * job.prepared.stride;
  // As few tiles as it takes, of sizes that differ by one at most.
  const int64_t count = (rows + tiles.rows - 1) / tiles.rows;
  const int64_t steps = I8Steps(job.depth), slice = count == 1 ? steps : kSliceSteps;
  // Tiles that share a slice share the fetching of the next one: two of the four lines of a step, or one
  // each. It goes on into the next panel.
  const int lines = count == 1 ? 0 : count <= 3 ? 2 : 1;
  for (int64_t s = first_step; s < steps; s += slice) {
    for (int64_t tile = 0; tile < count; ++tile) {
      const int64_t begin = tile * rows / count, end = (tile + 1) * rows / count;
      tiles.by_rows[end - begin - 1](
          {.x = x + begin * job.prepared.stride + kIntegersAt + s * tiles.step_bytes,
           .x_stride = job.prepared.stride,
           .panel = job.panel + s * kI8StepBytes,
           .steps = std::min(slice, steps - s),
           .sums = sums + begin * kPanelRows,
           .ahead = job.panel + s * kI8StepBytes + slice * (kI8StepBytes + tile * lines * kI8LineBytes),
           .lines = tile * lines >= 4 ? 0 : lines});
    }
  }
}

#if defined(__x86_64__)

// From so many rows on, tiles of AMX multiply them.
constexpr int64_t kFewestTileRows = 4;

// Rows from row `first` on against all panels of the job: sums [panels][rows][64].
void SumByTiles(const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
  constexpr int64_t kSteps = kTileStepBytes / kI8StepBytes;  // of a panel, in one of tiles
  const int64_t steps = I8Steps(job.depth) / kSteps;
  for (int p = 0; p < job.panels; ++p) BeginI8Sums(job, first, rows, sums + p * rows * kPanelRows);
  const std::byte* const x = job.prepared.From(first).data + kIntegersAt;
  ForTileSteps(steps, rows, job.panels, [&](int64_t begin, int64_t count, int panel) {
    const std::byte* const at = job.panel + panel * job.panel_bytes + begin * kTileStepBytes;
    MultiplyByteTiles({.x = x + begin * kTileRowBytes,
                       .x_stride = job.prepared.stride,
                       .rows = rows,
                       .panel = at,
                       .steps = count,
                       .sums = reinterpret_cast<std::byte*>(sums + panel * rows * kPanelRows),
                       .ahead = at + (rows <= kTileRows ? 1 : count) * kTileStepBytes,
                       .ahead_step = kTileStepBytes});
  });
  if (steps * kSteps == I8Steps(job.depth)) return;
  for (int p = 0; p < job.panels; ++p) {
    AddSteps(kI8VnniTiles, job.Of(p), first, rows, steps * kSteps, sums + p * rows * kPanelRows);
  }
}

#endif

struct I8Integers {
  template <Isa isa>
  static int64_t RowBytes(int64_t cols) {
    return kIntegersAt + I8Steps(cols) * TilesFor<isa>().step_bytes;
  }

  template <Isa isa>
  static void Quantize(const float* x, int64_t cols, int32_t largest, std::byte* row) {
    const int64_t steps = I8Steps(cols);
    auto* integers = reinterpret_cast<int8_t*>(row + kIntegersAt);
    std::memset(integers + steps * kI8Step - kI8Step, 0, kI8Step);
    const IntegerRowHead head = QuantizeRow<isa>(x, cols, largest, integers);
    std::memcpy(row, &head, sizeof head);
    if (TilesFor<isa>().step_bytes == kI8Step) return;
    // From the end, so that none is overwritten before it is read.
    for (int64_t s = steps - 1; s >= 0; --s) {
      const int8_t* four = integers + s * kI8Step;
      const int16_t pairs[kI8Step] = {four[0], four[2], four[1], four[3]};
      std::memcpy(integers + s * static_cast<int64_t>(sizeof pairs), pairs, sizeof pairs);
    }
  }

  template <Isa isa>
  static void SumChunk(const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
#if defined(__x86_64__)
    if (isa == Isa::kAmx && (rows >= kFewestTileRows || job.panels > 1)) {
      return SumByTiles(job, first, rows, sums);
    }
#endif
    BeginI8Sums(job, first, rows, sums);
    AddSteps(TilesFor<isa>(), job, first, rows, 0, sums);
  }

  template <Isa isa>
  static void SumAbreast(const PanelProduct& job, int32_t* sums) {
    const std::byte* x = job.prepared.data;
    std::fill_n(sums, job.panels * kPanelRows, -kI8Offset * HeadOf(x).sum);
    const I8Tile tile = {.x = x + kIntegersAt,
                         .x_stride = 0,
                         .panel = job.panel,
                         .steps = I8Steps(job.depth),
                         .sums = sums,
                         .ahead = nullptr,
                         .lines = 0};
    if (job.panels == TilesFor<isa>().abreast) return TilesFor<isa>().one_row(tile, job.panel_bytes);
    for (int p = 0; p < job.panels; ++p) {
      I8Tile one = tile;
      one.panel += p * job.panel_bytes;
      one.sums += p * kPanelRows;
      TilesFor<isa>().by_rows[0](one);
    }
  }

  static const float* ScalesOf(const std::byte* panel, int64_t cols) {
    return reinterpret_cast<const float*>(panel + I8Steps(cols) * kI8StepBytes);
  }
};

class I8WeightFormat final : public WeightFormat {
 public:
  std::string_view name() const override { return "i8"; }
  std::string_view numerics(Isa) const override { return "cpu-i8/1"; }
  bool Takes(const WeightView& part) const override {
    const Quantization& q = part.quantization;
    const bool bytes = q.bits == 8 && q.group >= part.cols && q.zeros == nullptr;
    return (bytes || q.lattice()) && part.cols <= kMostIntegerColumns;
  }

  int64_t PanelBytes(int64_t cols) const override {
    return I8Steps(cols) * kI8StepBytes + kPanelRows * static_cast<int64_t>(sizeof(float));
  }
  void PackRow(const WeightView& part, int64_t from, std::byte* panel, int row) const override {
    const auto place = [&](int64_t c) -> std::byte& {
      return panel[c / kI8Step * kI8StepBytes + row * kI8Step + c % kI8Step];
    };
    if (part.quantization.lattice()) {
      for (int64_t c = 0; c < part.cols; ++c) place(c) = std::byte(IntegerAt(part, from, c) + kI8Offset);
    } else {
      const auto* values = static_cast<const int8_t*>(part.data) + from * part.cols;
      for (int64_t c = 0; c < part.cols; ++c) place(c) = std::byte(values[c] + kI8Offset);
    }
    std::memcpy(panel + I8Steps(part.cols) * kI8StepBytes + row * sizeof(float),
                part.quantization.scales + from, sizeof(float));
  }
  void ReadRow(const std::byte* panel, int row, std::span<float> out) const override {
    const auto cols = static_cast<int64_t>(out.size());
    const float scale = I8Integers::ScalesOf(panel, cols)[row];
    for (int64_t c = 0; c < cols; ++c) {
      const auto byte = std::to_integer<int>(panel[c / kI8Step * kI8StepBytes + row * kI8Step + c % kI8Step]);
      // For a row beyond the matrix, both factors are 0; adding 0 avoids a product of -0.
      out[static_cast<size_t>(c)] = scale * static_cast<float>(byte - kI8Offset) + 0.0f;
    }
  }
  Product ProductFor(Isa isa) const override { return IntegerProductFor<I8Integers>(isa); }
  int Abreast(Isa isa) const override { return I8TilesFor(isa).abreast; }
  int Together(Isa isa) const override { return isa == Isa::kAmx ? kTilePanelsTogether : 1; }
  const IntegerKernel* IntegersFor(Isa isa) const override { return IntegerKernelFor<I8Integers>(isa); }
};

}  // namespace

void BeginI8Sums(const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
  const std::byte* x = job.prepared.data + first * job.prepared.stride;
  for (int64_t r = 0; r < rows; ++r) {
    std::fill_n(sums + r * kPanelRows, kPanelRows, -kI8Offset * HeadOf(x + r * job.prepared.stride).sum);
  }
}

const I8Tiles& I8TilesFor(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return TilesFor<Isa::kBaseline>();
    case Isa::kAvx2:
      return TilesFor<Isa::kAvx2>();
    case Isa::kAvx512:
      return TilesFor<Isa::kAvx512>();
    case Isa::kAvx512Vnni:
    case Isa::kAmx:
      break;
  }
  return TilesFor<Isa::kAvx512Vnni>();
}

const WeightFormat& I8Format() {
  static const auto& format = *new I8WeightFormat;  // threads may use it while the process ends
  return format;
}

}  // namespace baton::kernels::cpu
#endif
