// 4-bit weights on the lattice of int8: a group of 16 columns has an integer factor and an integer zero, a
// row one float scale, and a product is that of the integers that they stand for (integer_product.h): the
// bits of format_i8.cc for equal integers. Halves of bytes times bytes of x fit 16 bits for a whole group, so
// that every instruction set multiplies them by the byte and applies factor and zero to the sums.
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/kernels/cpu/amx_tiles.h"
#include "engine/kernels/cpu/format.h"
#include "engine/kernels/cpu/i4_tiles.h"
#include "engine/kernels/cpu/integer_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/format_i4.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::CappedTag<int32_t, 16>;
using Halves = hn::Repartition<int16_t, Words>;
using Bytes = hn::Repartition<uint8_t, Words>;
using SignedBytes = hn::Repartition<int8_t, Words>;
using NarrowBytes = hn::Rebind<uint8_t, Words>;
constexpr int kWords = static_cast<int>(hn::MaxLanes(Words()));

// Four integers of x, in every word.
HWY_INLINE hn::Vec<SignedBytes> StepAt(const std::byte* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return hn::BitCast(SignedBytes(), hn::Set(Words(), four));
}

// a[2i] b[2i] + a[2i + 1] b[2i + 1] in 16 bits: VPMADDUBSW, which saturates, where nothing here gets.
HWY_INLINE hn::Vec<Halves> BytePairs(hn::Vec<Bytes> a, hn::Vec<SignedBytes> b) {
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Halves>{_mm512_maddubs_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Halves>{_mm256_maddubs_epi16(a.raw, b.raw)};
#else
  const Halves halves;
  const auto low = hn::Set(halves, 0x00FF);
  const auto of_a = hn::BitCast(halves, a), of_b = hn::BitCast(halves, b);
  return hn::Add(hn::Mul(hn::And(of_a, low), hn::ShiftRight<8>(hn::ShiftLeft<8>(of_b))),
                 hn::Mul(hn::ShiftRight<8>(of_a), hn::ShiftRight<8>(of_b)));
#endif
}

// a[2i] b[2i] + a[2i + 1] b[2i + 1]: VPMADDWD, one instruction on every x86.
HWY_INLINE hn::Vec<Words> Pairs(hn::Vec<Halves> a, hn::Vec<Halves> b) {
  hn::Vec<Words> unused = hn::Zero(Words());
  return hn::ReorderWidenMulAccumulate(Words(), a, b, hn::Zero(Words()), unused);
}

template <int kRows, int kVectors>
void TileOf(const I4Tile& tile, int first_row) {
  const Words words;
  const Halves halves;
  const Bytes bytes;
  const auto low_halves = hn::Set(bytes, uint8_t{15});
  const std::byte* block = tile.panel;
  const std::byte* x = tile.x;
  const std::byte* x_sums = tile.x_sums;
  const int64_t x_stride = tile.x_stride;
  for (int64_t b = 0; b < tile.blocks; ++b) {
    BATON_UNROLLED
    for (int g = 0; g < kI4Groups; ++g) {
      const std::byte* x_group = x + g * kI4Group;
      // A lane has two products of each of 4 steps: 8 * 15 * 127 at most, below 2^15.
      hn::Vec<Halves> sum[kRows][kVectors];
      BATON_UNROLLED
      for (int p = 0; p < kI4Pairs; ++p) {
        const auto* pair =
            reinterpret_cast<const uint8_t*>(block + (g * kI4Pairs + p) * kI4PairBytes + first_row * kI8Step);
        hn::Vec<Bytes> low[kVectors], high[kVectors];
        BATON_UNROLLED
        for (int v = 0; v < kVectors; ++v) {
          const auto both = hn::LoadU(bytes, pair + v * kWords * kI8Step);
          low[v] = hn::And(both, low_halves);
          high[v] = hn::And(
              hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(hn::RebindToUnsigned<Halves>(), both))),
              low_halves);
        }
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          const auto x_low = StepAt(x_group + r * x_stride + p * 8),
                     x_high = StepAt(x_group + r * x_stride + p * 8 + 4);
          BATON_UNROLLED
          for (int v = 0; v < kVectors; ++v) {
            const auto products = hn::Add(BytePairs(low[v], x_low), BytePairs(high[v], x_high));
            sum[r][v] = p == 0 ? products : hn::Add(sum[r][v], products);
          }
        }
      }
      BATON_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        const auto* groups = reinterpret_cast<const uint8_t*>(block + kI4GroupsAt + g * kPanelRows);
        const auto group = hn::PromoteTo(words, hn::LoadU(NarrowBytes(), groups + first_row + v * kWords));
        const auto factor = hn::Add(hn::And(group, hn::Set(words, 15)), hn::Set(words, 1));
        const auto zero = hn::ShiftRight<4>(group);
        const auto factors = hn::BitCast(halves, hn::Or(factor, hn::ShiftLeft<16>(factor)));
        // factor * zero, up to 240, beside a 0: the sums of x, up to 2032, fit 16 bits too.
        const auto shift = Pairs(hn::BitCast(halves, factor), hn::BitCast(halves, zero));
        BATON_UNROLLED
        for (int r = 0; r < kRows; ++r) {
          int32_t* to = tile.sums + r * kPanelRows + first_row + v * kWords;
          int32_t of_x;
          std::memcpy(&of_x, x_sums + r * x_stride + g * sizeof(int32_t), sizeof of_x);
          const auto minus = hn::BitCast(halves, hn::And(hn::Set(words, -of_x), hn::Set(words, 0xFFFF)));
          const auto scaled = hn::Add(Pairs(sum[r][v], factors), Pairs(hn::BitCast(halves, shift), minus));
          hn::StoreU(hn::Add(hn::LoadU(words, to), scaled), words, to);
        }
      }
    }
    block += kI4BlockBytes;
    x += kI4Block;
    x_sums += kI4Groups * sizeof(int32_t);
  }
}

template <int kRows>
void Tile(const I4Tile& tile) {
  // As many sums as the registers hold beside weights: 32 of them with AVX-512, else 16.
  constexpr int kVectors = kWords == 16 ? 4 : kRows == 1 ? 4 : 2;
  for (int first = 0; first < kPanelRows; first += kVectors * kWords) TileOf<kRows, kVectors>(tile, first);
}

#else

template <int kRows>
void Tile(const I4Tile& tile) {
  for (int r = 0; r < kRows; ++r) {
    const auto* x = reinterpret_cast<const int8_t*>(tile.x + r * tile.x_stride);
    for (int64_t b = 0; b < tile.blocks; ++b) {
      const auto* block = reinterpret_cast<const uint8_t*>(tile.panel + b * kI4BlockBytes);
      for (int n = 0; n < kPanelRows; ++n) {
        for (int p = 0; p < kI4Groups * kI4Pairs; ++p) {
          const int group = block[kI4GroupsAt + p / kI4Pairs * kPanelRows + n], zero = group >> 4;
          int32_t sum = 0;
          for (int i = 0; i < kI8Step; ++i) {
            const int both = block[p * kI4PairBytes + n * kI8Step + i];
            const int8_t* at = x + b * kI4Block + p * 8 + i;
            sum += ((both & 15) - zero) * at[0] + ((both >> 4) - zero) * at[4];
          }
          tile.sums[r * kPanelRows + n] += ((group & 15) + 1) * sum;
        }
      }
    }
  }
}

#endif

}  // namespace

void I4Tile1(const I4Tile& tile) { Tile<1>(tile); }
void I4Tile2(const I4Tile& tile) { Tile<2>(tile); }
void I4Tile3(const I4Tile& tile) { Tile<3>(tile); }
void I4Tile4(const I4Tile& tile) { Tile<4>(tile); }

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {
namespace {

// Blocks of a panel in one go when several tiles share them: 18 KiB of weights, half of a first-level cache.
constexpr int64_t kSharedBlocks = 16;

template <Isa isa>
const I4Tiles& TilesFor() {
  static constexpr I4Tiles kHalves = {.rows = 4,
                                      .by_rows = {BATON_FOR_ISA(isa, I4Tile1), BATON_FOR_ISA(isa, I4Tile2),
                                                  BATON_FOR_ISA(isa, I4Tile3), BATON_FOR_ISA(isa, I4Tile4)}};
#if defined(__x86_64__)
  if constexpr (isa >= Isa::kAvx512Vnni) return kI4VnniTiles;
#endif
  return kHalves;
}

// Where the sums of the groups of a quantized row begin.
constexpr int64_t SumsAt(int64_t cols) { return kIntegersAt + I4Blocks(cols) * kI4Block; }

void SumByHalves(const I4Tiles& tiles, const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
  std::fill_n(sums, rows * kPanelRows, 0);
  const std::byte* x = job.prepared.data + first * job.prepared.stride;
  const int64_t blocks = I4Blocks(job.depth), sums_at = SumsAt(job.depth);
  const int64_t count = (rows + tiles.rows - 1) / tiles.rows;
  const int64_t slice = count == 1 ? blocks : kSharedBlocks;
  for (int64_t b = 0; b < blocks; b += slice) {
    for (int64_t tile = 0; tile < count; ++tile) {
      const int64_t begin = tile * rows / count, end = (tile + 1) * rows / count;
      const std::byte* row = x + begin * job.prepared.stride;
      tiles.by_rows[end - begin - 1](
          {.x = row + kIntegersAt + b * kI4Block,
           .x_sums = row + sums_at + b * kI4Groups * static_cast<int64_t>(sizeof(int32_t)),
           .x_stride = job.prepared.stride,
           .panel = job.panel + b * kI4BlockBytes,
           .blocks = std::min(slice, blocks - b),
           .sums = sums + begin * kPanelRows});
    }
  }
}

#if defined(__x86_64__)

// From so many rows on, VNNI makes bytes of a panel's weights, for the tiles of int8.
constexpr int64_t kExpandRows = 9;
constexpr int64_t kStepsOfBlock = kI4Block / kI8Step;

// Rows from row `first` on against steps of a panel of int8 that some blocks from block `block` on became,
// added to sums [rows][64].
void AddExpanded(const PanelProduct& job, int64_t first, int64_t rows, int64_t block, const std::byte* steps,
                 int64_t blocks, int32_t* sums) {
  const std::byte* x = job.prepared.data + first * job.prepared.stride + kIntegersAt + block * kI4Block;
  const int64_t count = (rows + kI8VnniTiles.rows - 1) / kI8VnniTiles.rows;
  for (int64_t tile = 0; tile < count; ++tile) {
    const int64_t begin = tile * rows / count, end = (tile + 1) * rows / count;
    kI8VnniTiles.by_rows[end - begin - 1]({.x = x + begin * job.prepared.stride,
                                           .x_stride = job.prepared.stride,
                                           .panel = steps,
                                           .steps = blocks * kStepsOfBlock,
                                           .sums = sums + begin * kPanelRows,
                                           // The first tile fetches the next blocks: 18 lines of each, 2 with
                                           // a step.
                                           .ahead = job.panel + (block + blocks) * kI4BlockBytes,
                                           .lines = tile == 0 ? 2 : 0});
  }
}

void SumExpandedVnni(const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
  constexpr int64_t kTogether = 8;  // blocks: 16 KiB of bytes
  alignas(64) std::byte steps[kTogether * kStepsOfBlock * kI8StepBytes];
  BeginI8Sums(job, first, rows, sums);
  const int64_t blocks = I4Blocks(job.depth);
  for (int64_t b = 0; b < blocks; b += kTogether) {
    const int64_t some = std::min(kTogether, blocks - b);
    ExpandI4Vnni(job.panel + b * kI4BlockBytes, some, steps);
    AddExpanded(job, first, rows, b, steps, some, sums);
  }
}

// From so many rows on, tiles of AMX multiply them: fewer are one tile of I4Tiles.
constexpr int64_t kFewestTileRows = I4Tiles::kMostRows + 1;

// Rows from row `first` on against all panels of the job: sums [panels][rows][64].
void SumExpandedAmx(const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
  constexpr int64_t kTileBlocks = kTileStepBytes / (kStepsOfBlock * kI8StepBytes);  // of a step of tiles
  const int64_t blocks = I4Blocks(job.depth), steps = blocks / kTileBlocks, rest = blocks % kTileBlocks;
  alignas(64) std::byte bytes[kMostTileSteps * kTileStepBytes];
  for (int p = 0; p < job.panels; ++p) BeginI8Sums(job, first, rows, sums + p * rows * kPanelRows);
  const std::byte* const x = job.prepared.From(first).data + kIntegersAt;
  ForTileSteps(steps, rows, job.panels, [&](int64_t begin, int64_t count, int panel) {
    const std::byte* const at = job.panel + panel * job.panel_bytes + begin * kTileBlocks * kI4BlockBytes;
    ExpandI4Vnni(at, count * kTileBlocks, bytes);
    MultiplyByteTiles({.x = x + begin * kTileRowBytes,
                       .x_stride = job.prepared.stride,
                       .rows = rows,
                       .panel = bytes,
                       .steps = count,
                       .sums = reinterpret_cast<std::byte*>(sums + panel * rows * kPanelRows),
                       .ahead = at + count * kTileBlocks * kI4BlockBytes,
                       .ahead_step = kTileBlocks * kI4BlockBytes});
  });
  if (rest == 0) return;
  for (int p = 0; p < job.panels; ++p) {
    const PanelProduct one = job.Of(p);
    ExpandI4Vnni(one.panel + (blocks - rest) * kI4BlockBytes, rest, bytes);
    AddExpanded(one, first, rows, blocks - rest, bytes, rest, sums + p * rows * kPanelRows);
  }
}

#endif

struct I4Integers {
  template <Isa isa>
  static int64_t RowBytes(int64_t cols) {
    return SumsAt(cols) + I4Blocks(cols) * kI4Groups * static_cast<int64_t>(sizeof(int32_t));
  }

  template <Isa isa>
  static void Quantize(const float* x, int64_t cols, int32_t largest, std::byte* row) {
    auto* integers = reinterpret_cast<int8_t*>(row + kIntegersAt);
    const IntegerRowHead head = QuantizeRow<isa>(x, cols, largest, integers);
    std::memcpy(row, &head, sizeof head);
    const int64_t blocks = I4Blocks(cols);
    std::memset(integers + cols, 0, static_cast<size_t>(blocks * kI4Block - cols));
    for (int64_t g = 0; g < blocks * kI4Groups; ++g) {
      int32_t sum = 0;
      for (int64_t i = 0; i < kI4Group; ++i) sum += integers[g * kI4Group + i];
      std::memcpy(row + SumsAt(cols) + g * static_cast<int64_t>(sizeof sum), &sum, sizeof sum);
    }
  }

  template <Isa isa>
  static void SumChunk(const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
#if defined(__x86_64__)
    if (isa == Isa::kAmx && (rows >= kFewestTileRows || job.panels > 1)) {
      return SumExpandedAmx(job, first, rows, sums);
    }
    if (isa >= Isa::kAvx512Vnni && rows >= kExpandRows) return SumExpandedVnni(job, first, rows, sums);
#endif
    SumByHalves(TilesFor<isa>(), job, first, rows, sums);
  }

  template <Isa isa>
  static void SumAbreast(const PanelProduct& job, int32_t* sums) {
    std::fill_n(sums, job.panels * kPanelRows, 0);
    const I4Tile tile = {.x = job.prepared.data + kIntegersAt,
                         .x_sums = job.prepared.data + SumsAt(job.depth),
                         .x_stride = 0,
                         .panel = job.panel,
                         .blocks = I4Blocks(job.depth),
                         .sums = sums};
    if (job.panels == TilesFor<isa>().abreast) return TilesFor<isa>().one_row(tile, job.panel_bytes);
    for (int p = 0; p < job.panels; ++p) {
      I4Tile one = tile;
      one.panel += p * job.panel_bytes;
      one.sums += p * kPanelRows;
      TilesFor<isa>().by_rows[0](one);
    }
  }

  static const float* ScalesOf(const std::byte* panel, int64_t cols) {
    return reinterpret_cast<const float*>(panel + I4Blocks(cols) * kI4BlockBytes);
  }
};

// The byte of a panel that holds a column of a row, and the bits below it there.
struct HalfPlace {
  int64_t byte;
  int shift;
};
HalfPlace PlaceOf(int row, int64_t col) {
  const int64_t in_block = col % kI4Block;
  return {col / kI4Block * kI4BlockBytes + in_block / 8 * kI4PairBytes + row * kI8Step + in_block % kI8Step,
          in_block % 8 < kI8Step ? 0 : 4};
}
int64_t GroupPlace(int row, int64_t col) {
  return col / kI4Block * kI4BlockBytes + kI4GroupsAt + col % kI4Block / kI4Group * kPanelRows + row;
}

class I4WeightFormat final : public WeightFormat {
 public:
  std::string_view name() const override { return "i4"; }
  std::string_view numerics(Isa) const override { return "cpu-i8/1"; }
  bool Takes(const WeightView& part) const override {
    const Quantization& q = part.quantization;
    return q.lattice() && q.zeros != nullptr && q.group == kI4Group && part.cols <= kMostIntegerColumns;
  }

  int64_t PanelBytes(int64_t cols) const override {
    return I4Blocks(cols) * kI4BlockBytes + kPanelRows * static_cast<int64_t>(sizeof(float));
  }
  void PackRow(const WeightView& part, int64_t from, std::byte* panel, int row) const override {
    const Quantization& q = part.quantization;
    const auto* halves = static_cast<const std::byte*>(part.data) + from * ((part.cols + 1) / 2);
    for (int64_t c = 0; c < part.cols; ++c) {
      const HalfPlace place = PlaceOf(row, c);
      const std::byte value = halves[c / 2] >> (c % 2 * 4) & std::byte{15};
      panel[place.byte] |= value << place.shift;
    }
    const int64_t groups = (part.cols + kI4Group - 1) / kI4Group;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = from * groups + g;
      panel[GroupPlace(row, g * kI4Group)] = std::byte((q.factors[at] - 1) | q.zeros[at] << 4);
    }
    std::memcpy(panel + I4Blocks(part.cols) * kI4BlockBytes + row * sizeof(float), q.scales + from,
                sizeof(float));
  }
  void ReadRow(const std::byte* panel, int row, std::span<float> out) const override {
    const auto cols = static_cast<int64_t>(out.size());
    const float scale = I4Integers::ScalesOf(panel, cols)[row];
    for (int64_t c = 0; c < cols; ++c) {
      const HalfPlace place = PlaceOf(row, c);
      const int group = std::to_integer<int>(panel[GroupPlace(row, c)]);
      const int value = std::to_integer<int>(panel[place.byte] >> place.shift) & 15;
      const int integer = ((group & 15) + 1) * (value - (group >> 4));
      // For a row beyond the matrix, scale and integer are 0; adding 0 avoids a product of -0.
      out[static_cast<size_t>(c)] = scale * static_cast<float>(integer) + 0.0f;
    }
  }
  Product ProductFor(Isa isa) const override { return IntegerProductFor<I4Integers>(isa); }
  int Abreast(Isa isa) const override {
    return isa >= Isa::kAvx512Vnni ? TilesFor<Isa::kAvx512Vnni>().abreast : 1;
  }
  int Together(Isa isa) const override { return isa == Isa::kAmx ? kTilePanelsTogether : 1; }
  const IntegerKernel* IntegersFor(Isa isa) const override { return IntegerKernelFor<I4Integers>(isa); }
};

}  // namespace

const WeightFormat& I4Format() {
  static const auto& format = *new I4WeightFormat;  // threads may use it while the process ends
  return format;
}

}  // namespace baton::kernels::cpu
#endif
