// bfloat16 weights (bf16_tiles.h): tiles of float32 multiply-adds for every instruction set, packing, and the
// choice of tiles.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/dtype.h"
#include "engine/kernels/cpu/bf16_amx.h"
#include "engine/kernels/cpu/bf16_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/format_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using Words = hn::RebindToUnsigned<F>;
using Vec = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int kPanelVectors = kPanelRows / kLanes;

// Rounds x to the nearest bfloat16, ties to even; numbers below 2^-126 become zeros of their sign.
HWY_INLINE Vec RoundToBF16(Vec x) {
  const Words words;
  const auto bits = hn::BitCast(words, x);
  const auto magnitude = hn::And(bits, hn::Set(words, 0x7FFFFFFFu));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto nearest = hn::Add(hn::Add(bits, hn::Set(words, 0x7FFF)), odd);
  const auto nan = hn::Or(bits, hn::Set(words, 0x00400000u));
  const auto rounded = hn::And(hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7F800000u)), nan, nearest),
                               hn::Set(words, 0xFFFF0000u));
  const auto zero = hn::And(bits, hn::Set(words, 0x80000000u));
  return hn::BitCast(F(), hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, 0x00800000u)), zero, rounded));
}

// Reads kLanes rows of a column of a pair: of the earlier one, or of the later.
template <int kColumn>
HWY_INLINE Vec LoadColumn(const std::byte* at) {
  const Words words;
  const auto both = hn::LoadU(words, reinterpret_cast<const uint32_t*>(at));
  const auto column = kColumn == 0 ? hn::And(both, hn::Set(words, 0xFFFF0000u)) : hn::ShiftLeft<16>(both);
  return hn::BitCast(F(), column);
}

// sum += x * a column of a pair. (One column at a time, so that weights take few registers.)
template <int kRows, int kVectors, int kPanels, int kColumn>
HWY_INLINE void AddColumn(Vec (&sum)[kRows][kPanels * kVectors], const float* x, int64_t x_stride,
                          const std::byte* w, int64_t panel_bytes) {
  Vec column[kPanels * kVectors];
  BATON_UNROLLED
  for (int v = 0; v < kPanels * kVectors; ++v) {
    column[v] = LoadColumn<kColumn>(w + v / kVectors * panel_bytes +
                                    v % kVectors * kLanes * static_cast<int64_t>(sizeof(float)));
  }
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    const Vec value = hn::Set(F(), x[r * x_stride + kColumn]);
    BATON_UNROLLED
    for (int v = 0; v < kPanels * kVectors; ++v) sum[r][v] = hn::MulAdd(value, column[v], sum[r][v]);
  }
}

// Half of a block: kRows rows of x against 8 pairs of columns, kVectors vectors of rows of kPanels panels.
template <int kRows, int kVectors, int kPanels>
HWY_INLINE void AddHalf(Vec (&sum)[kRows][kPanels * kVectors], const float* x, int64_t x_stride,
                        const std::byte* w, int64_t panel_bytes, const std::byte* ahead, int lines) {
  // A product of one row fetches so far ahead of what it reads, in each of its panels.
  constexpr int64_t kFetchedAhead = 2048;
  BATON_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    BATON_UNROLLED
    for (int v = 0; v < kPanels * kVectors; ++v) sum[r][v] = hn::Zero(F());
  }
  for (int pair = 0; pair < kBF16Pairs / 2; ++pair) {
    for (int line = 0; line < lines; ++line) __builtin_prefetch(ahead + line * kBF16LineBytes, 0, 2);
    ahead += lines * kBF16LineBytes;
    if constexpr (kPanels > 1) {
      BATON_UNROLLED
      for (int p = 0; p < kPanels; ++p) {
        for (int line = 0; line < kBF16PairBytes / kBF16LineBytes; ++line) {
          __builtin_prefetch(w + p * panel_bytes + kFetchedAhead + line * kBF16LineBytes, 0, 3);
        }
      }
    }
    AddColumn<kRows, kVectors, kPanels, 0>(sum, x, x_stride, w, panel_bytes);
    AddColumn<kRows, kVectors, kPanels, 1>(sum, x, x_stride, w, panel_bytes);
    w += kBF16PairBytes;
    x += 2;
  }
}

// kRows rows of x against rows [first_row, first_row + kVectors * kLanes) of kPanels panels.
template <int kRows, int kVectors, int kPanels>
void TileOf(const BF16Tile& tile, int first_row, int64_t panel_bytes) {
  constexpr int64_t kHalfBytes = kBF16Pairs / 2 * kBF16PairBytes;
  const auto* x = reinterpret_cast<const float*>(tile.x);
  const int64_t x_stride = tile.x_stride / static_cast<int64_t>(sizeof(float));
  const std::byte* w = tile.w + first_row * static_cast<int64_t>(sizeof(float));
  // The first of the passes over these blocks fetches.
  const std::byte* ahead = tile.ahead;
  const int lines = first_row == 0 ? tile.lines : 0;
  const int64_t ahead_bytes = lines * kBF16Pairs / 2 * kBF16LineBytes;
  for (int64_t block = 0; block < tile.blocks; ++block) {
    Vec first[kRows][kPanels * kVectors], second[kRows][kPanels * kVectors];
    AddHalf<kRows, kVectors, kPanels>(first, x, x_stride, w, panel_bytes, ahead, lines);
    x += kBF16Block / 2, w += kHalfBytes, ahead += ahead_bytes;
    AddHalf<kRows, kVectors, kPanels>(second, x, x_stride, w, panel_bytes, ahead, lines);
    x += kBF16Block / 2, w += kHalfBytes, ahead += ahead_bytes;
    BATON_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      BATON_UNROLLED
      for (int v = 0; v < kPanels * kVectors; ++v) {
        float* const at = tile.sums + r * kPanelRows + first_row + v * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(F(), at), hn::Add(first[r][v], second[r][v])), F(), at);
      }
    }
  }
}

template <int kRows>
void Tile(const BF16Tile& tile) {
  // As many sums as the registers hold beside weights: 32 of them with AVX-512, else 16.
  constexpr int kVectors = kLanes == 16 ? 4 : HWY_MIN(kPanelVectors, kRows == 1 ? 8 : kRows == 2 ? 4 : 2);
  for (int first = 0; first < kPanelRows; first += kVectors * kLanes) {
    TileOf<kRows, kVectors, 1>(tile, first, 0);
  }
}

void OneRow(const BF16Tile& tile, int64_t panel_bytes) {
  if constexpr (kLanes == 16) TileOf<1, kPanelVectors, kFloatPanelsAbreast>(tile, 0, panel_bytes);
}

}  // namespace

void BF16Round(const float* x, int64_t cols, std::byte* row) {
  auto* out = reinterpret_cast<float*>(row);
  int64_t k = 0;
  for (; k + kLanes <= cols; k += kLanes) hn::StoreU(RoundToBF16(hn::LoadU(F(), x + k)), F(), out + k);
  if (k < cols) {
    HWY_ALIGN float rest[kLanes] = {};
    std::copy(x + k, x + cols, rest);
    hn::Store(RoundToBF16(hn::Load(F(), rest)), F(), rest);
    std::copy_n(rest, cols - k, out + k);
  }
  std::fill(out + cols, out + BF16Blocks(cols) * kBF16Block, 0.0f);
}

const BF16Tiles& BF16OwnTiles() {
  static constexpr BF16Tiles kTiles = {
      .x_block_bytes = kBF16Block * sizeof(float),
      .round = &BF16Round,
      .rows = 4,
      .one_pass = kLanes == 16,
      .by_rows = {&Tile<1>, &Tile<2>, &Tile<3>, &Tile<4>, &Tile<5>, &Tile<6>},
      .abreast = kLanes == 16 ? kFloatPanelsAbreast : 1,
      .one_row = kLanes == 16 ? &OneRow : nullptr,
  };
  return kTiles;
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {
namespace {

static_assert(std::endian::native == std::endian::little);

// Rows of x that go through a panel together: their sums take 24 KiB, or, for tiles of AMX, which take
// several panels, 256 KiB.
constexpr int64_t kChunkRows = 96, kAmxChunkRows = 256;
// Blocks of a panel in one go when several tiles share them: 16 KiB of weights, half of a first-level cache.
constexpr int64_t kSliceBlocks = 4;

// Up to kChunkRows rows of a product from row `first` on, added to sums [rows][64].
void MultiplyChunk(const BF16Tiles& tiles, const PanelProduct& job, int64_t first, int64_t rows,
                   float* sums) {
  const std::byte* x = job.prepared.data + first * job.prepared.stride;
  // Few rows go in one tile, which reads weights from memory once; more of them in as few tiles as it takes,
  // of sizes that differ by one at most.
  const int64_t count = rows <= BF16Tiles::kMostRows ? 1 : (rows + tiles.rows - 1) / tiles.rows;
  const int64_t blocks = BF16Blocks(job.depth);
  const bool in_one_go = count == 1 && tiles.one_pass;
  const int64_t slice = in_one_go ? blocks : kSliceBlocks;
  // Tiles that share a slice share the fetching of the next one: of the four lines of a pair all, two or one
  // each. It goes on into the next panel. (The processor fetches for a tile that reads weights in one go.)
  const int lines = in_one_go ? 0 : count == 1 ? 4 : count <= 3 ? 2 : 1;
  for (int64_t b = 0; b < blocks; b += slice) {
    const std::byte* const w = job.panel + b * kBF16BlockBytes;
    const int64_t some = std::min(slice, blocks - b);
    for (int64_t tile = 0; tile < count; ++tile) {
      const int64_t begin = tile * rows / count, end = (tile + 1) * rows / count;
      const BF16Tile one = {
          .x = x + begin * job.prepared.stride + b * tiles.x_block_bytes,
          .x_stride = job.prepared.stride,
          .w = w,
          .blocks = some,
          .sums = sums + begin * kPanelRows,
          .ahead = w + some * kBF16BlockBytes + tile * lines * slice * kBF16Pairs * kBF16LineBytes,
          .lines = tile * lines >= 4 ? 0 : lines};
      tiles.by_rows[end - begin - 1](one);
    }
  }
}

// The sums [rows][64] begin with the bias of a panel, or 0.
void Begin(const float* bias, int width, int64_t rows, float* sums) {
  std::fill_n(sums, rows * kPanelRows, 0.0f);
  if (bias == nullptr) return;
  for (int64_t r = 0; r < rows; ++r) std::copy_n(bias, width, sums + r * kPanelRows);
}

void MultiplyAbreast(const BF16Tiles& tiles, const PanelProduct& job) {
  alignas(64) float sums[BF16Tiles::kMostAbreast * kPanelRows];
  BATON_CHECK(job.panels <= BF16Tiles::kMostAbreast);
  std::fill(std::begin(sums), std::end(sums), 0.0f);
  if (job.bias != nullptr) std::copy_n(job.bias, job.width, sums);
  BF16Tile tile = {.x = job.prepared.data,
                   .x_stride = 0,
                   .w = job.panel,
                   .blocks = BF16Blocks(job.depth),
                   .sums = sums,
                   .ahead = job.panel,
                   .lines = 0};
  if (job.panels > 1 && job.panels == tiles.abreast) {
    tiles.one_row(tile, job.panel_bytes);
  } else {
    for (int p = 0; p < job.panels; ++p, tile.w += job.panel_bytes, tile.sums += kPanelRows) {
      tiles.by_rows[0](tile);
    }
  }
  std::copy_n(sums, job.width, job.out);
}

// Computes a product, of whose rows add(first, rows, sums) adds some to C, [panels][rows][64].
template <int64_t kRows, int kPanels, typename Add>
void MultiplyChunks(const PanelProduct& job, const Add& add) {
  BATON_DCHECK(job.panels <= kPanels);
  // Sums stay here until they are done: rows of the output may lie a multiple of 4 KiB apart, and crowd in
  // the caches.
  alignas(64) float sums[kPanels * kRows * kPanelRows];
  for (int64_t first = 0; first < job.rows; first += kRows) {
    const int64_t rows = std::min(kRows, job.rows - first);
    for (int p = 0; p < job.panels; ++p) {
      const PanelProduct one = job.Of(p);
      Begin(one.bias, one.width, rows, sums + p * rows * kPanelRows);
    }
    add(first, rows, sums);
    for (int64_t r = 0; r < rows; ++r) {
      for (int p = 0; p < job.panels; ++p) {
        const PanelProduct one = job.Of(p);
        std::copy_n(sums + (p * rows + r) * kPanelRows, one.width, one.out + (first + r) * one.out_stride);
      }
    }
  }
}

void MultiplyWith(const BF16Tiles& tiles, const PanelProduct& job) {
  const FlushesDenormals flushes;
  if (job.rows == 1) return MultiplyAbreast(tiles, job);
  MultiplyChunks<kChunkRows, 1>(
      job, [&](int64_t first, int64_t rows, float* sums) { MultiplyChunk(tiles, job, first, rows, sums); });
}

template <Isa isa>
void Multiply(const PanelProduct& job) {
  MultiplyWith(BF16TilesFor(isa), job);
}

// The steps of a product by an instruction set.
struct Steps {
  RowKernel rows;
  WeightFormat::Product multiply;
};

template <Isa isa>
constexpr Steps kSteps = {
    .rows = {
        .bytes = [](int64_t cols) { return BF16Blocks(cols) * BF16TilesFor(isa).x_block_bytes; },
        .write = [](const float* x, int64_t cols, std::byte* row) { BF16TilesFor(isa).round(x, cols, row); }},
    .multiply = &Multiply<isa>};

bool ByAmx([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  return isa == Isa::kAmx && BF16AmxIsBetter();
#else
  return false;
#endif
}

#if defined(__x86_64__)

// From so many rows on, tiles of AMX multiply them.
constexpr int64_t kFewestTileRows = 4;

void MultiplyByAmx(const PanelProduct& job) {
  if (job.rows >= kFewestTileRows) {  // then only are several panels taken together
    return MultiplyChunks<kAmxChunkRows, kTilePanelsTogether>(
        job, [&](int64_t first, int64_t rows, float* sums) { BF16AmxMultiply(job, first, rows, sums); });
  }
  const BF16Tiles& tiles = BF16MultiplyAddTiles(Isa::kAmx);
  const int64_t row = BF16Blocks(job.depth) * kBF16Block;
  thread_local std::vector<float> floats;
  floats.resize(std::max(floats.size(), static_cast<size_t>(job.rows * row)));
  for (int64_t r = 0; r < job.rows; ++r) {
    BF16AmxRead(job.prepared.From(r).data, job.depth, floats.data() + r * row);
  }
  PanelProduct few = job;
  few.prepared = {reinterpret_cast<const std::byte*>(floats.data()),
                  row * static_cast<int64_t>(sizeof(float))};
  MultiplyWith(tiles, few);
}

constexpr Steps kAmxSteps = {.rows = {.bytes = &BF16AmxRowBytes, .write = &BF16AmxRound},
                             .multiply = &MultiplyByAmx};

#endif

const Steps& StepsFor(Isa isa) {
#if defined(__x86_64__)
  if (ByAmx(isa)) return kAmxSteps;
#endif
  switch (isa) {
    case Isa::kBaseline:
      return kSteps<Isa::kBaseline>;
    case Isa::kAvx2:
      return kSteps<Isa::kAvx2>;
    case Isa::kAvx512:
      return kSteps<Isa::kAvx512>;
    case Isa::kAvx512Vnni:
    case Isa::kAmx:
      break;
  }
  return kSteps<Isa::kAvx512Vnni>;
}

// Returns the place of a value in a panel, in values: the low half of a word comes first, and is the later
// column.
constexpr int64_t PlaceOf(int row, int64_t column) {
  return column / 2 * (2 * kPanelRows) + 2 * row + (column % 2 == 0 ? 1 : 0);
}

class BF16WeightFormat final : public WeightFormat {
 public:
  std::string_view name() const override { return "bf16"; }
  std::string_view numerics(Isa isa) const override {
    if (!FlushesDenormals::kWorks) return "cpu-bf16x32-gradual/1";
    return isa == Isa::kBaseline ? "cpu-bf16x32-unfused/1" : "cpu-bf16x32/1";
  }
  bool Takes(const WeightView& part) const override {
    return part.dtype == tensor::DType::kBF16 && !part.quantized();
  }

  int64_t PanelBytes(int64_t cols) const override { return BF16Blocks(cols) * kBF16BlockBytes; }
  void PackRow(const WeightView& part, int64_t from, std::byte* panel, int row) const override {
    const auto* values = static_cast<const std::byte*>(part.data) + from * part.cols * 2;
    auto* const to = reinterpret_cast<uint16_t*>(panel);
    for (int64_t c = 0; c < part.cols; ++c) {
      std::memcpy(to + PlaceOf(row, c), values + c * 2, 2);  // which need not be aligned
    }
  }
  void ReadRow(const std::byte* panel, int row, std::span<float> out) const override {
    const auto* const from = reinterpret_cast<const uint16_t*>(panel);
    for (int64_t c = 0; c < std::ssize(out); ++c) {
      out[static_cast<size_t>(c)] = tensor::FromBF16(from[PlaceOf(row, c)]);
    }
  }
  Product ProductFor(Isa isa) const override { return StepsFor(isa).multiply; }
  const RowKernel* RowsFor(Isa isa) const override { return &StepsFor(isa).rows; }
  int Abreast(Isa isa) const override { return BF16TilesFor(isa).abreast; }  // of either kind of tiles
  int Together(Isa isa) const override { return ByAmx(isa) ? kTilePanelsTogether : 1; }
};

#if defined(__x86_64__)

// Blocks of x and w, of all finite numbers of bfloat16 or of those about 1, and the sums of a tile of them.
struct Trial {
  static constexpr int64_t kBlocks = 8;
  static constexpr int kTrialRows = 48;  // tiles of 3, 4, 6 or 16

  std::vector<float> x = std::vector<float>(kTrialRows * kBlocks * kBF16Block);
  std::vector<uint32_t> w = std::vector<uint32_t>(kBlocks * kBF16Pairs * kPanelRows);
  std::vector<float> sums = std::vector<float>(kTrialRows * kPanelRows);
  uint64_t state = 1;

  uint16_t Draw(bool about_one) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
    const auto bits = static_cast<uint16_t>(state >> 40);
    if (about_one) return static_cast<uint16_t>((bits & 0x81FF) | 0x3E00);
    return (bits & 0x7F80) == 0x7F80 ? static_cast<uint16_t>(bits & 0xBFFF) : bits;
  }
  void Refill(bool about_one) {
    for (float& value : x) value = tensor::FromBF16(Draw(about_one));
    for (uint32_t& word : w) word = uint32_t{Draw(about_one)} << 16 | Draw(about_one);
  }
  // Multiplies by tiles; returns the seconds that it took.
  double Run(const BF16Tiles& tiles) {
    const int64_t stride = kBlocks * tiles.x_block_bytes;
    std::vector<std::byte> rows(static_cast<size_t>(kTrialRows * stride));
    for (int r = 0; r < kTrialRows; ++r) {
      tiles.round(x.data() + r * kBlocks * kBF16Block, kBlocks * kBF16Block, rows.data() + r * stride);
    }
    const auto* panel = reinterpret_cast<const std::byte*>(w.data());
    std::ranges::fill(sums, 0.0f);
    const FlushesDenormals flushes;
    return Timed([&] {
      for (int r = 0; r < kTrialRows; r += tiles.rows) {
        tiles.by_rows[tiles.rows - 1]({.x = rows.data() + r * stride,
                                       .x_stride = stride,
                                       .w = panel,
                                       .blocks = kBlocks,
                                       .sums = sums.data() + r * kPanelRows,
                                       .ahead = panel,
                                       .lines = 0});
      }
    });
  }
  // The same by tiles of AMX.
  double RunAmx() {
    const int64_t cols = kBlocks * kBF16Block, stride = BF16AmxRowBytes(cols);
    std::vector<std::byte> rows(static_cast<size_t>(kTrialRows * stride));
    for (int r = 0; r < kTrialRows; ++r) BF16AmxRound(x.data() + r * cols, cols, rows.data() + r * stride);
    std::ranges::fill(sums, 0.0f);
    const PanelProduct job = {.x = x.data(),
                              .x_stride = cols,
                              .rows = kTrialRows,
                              .depth = cols,
                              .panel = reinterpret_cast<const std::byte*>(w.data()),
                              .bias = nullptr,
                              .out = sums.data(),
                              .out_stride = kPanelRows,
                              .width = kPanelRows,
                              .prepared = {rows.data(), stride}};
    return Timed([&] { BF16AmxMultiply(job, 0, kTrialRows, sums.data()); });
  }

 private:
  template <typename Work>
  static double Timed(const Work& work) {
    const auto from = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }
};

// True if `run` of a trial has the bits of multiply-adds, and takes less time.
template <typename Run>
bool IsBetter(const Run& run) {
  const BF16Tiles& adds = BF16MultiplyAddTiles(Isa::kAvx512);
  Trial trial;
  double seconds = std::numeric_limits<double>::infinity(), of_adds = seconds;
  for (int i = 0; i < 32; ++i) {
    const bool about_one = i % 2 == 0;
    trial.Refill(about_one);
    const double taken = run(trial);
    if (about_one) seconds = std::min(seconds, taken);
    const std::vector<float> sums = trial.sums;
    const double other = trial.Run(adds);
    if (about_one) of_adds = std::min(of_adds, other);
    for (size_t n = 0; n < sums.size(); ++n) {
      const bool both_nan = std::isnan(sums[n]) && std::isnan(trial.sums[n]);
      if (!both_nan && std::bit_cast<uint32_t>(sums[n]) != std::bit_cast<uint32_t>(trial.sums[n])) {
        return false;
      }
    }
  }
  return seconds < of_adds;
}

// True if VDPBF16PS gives the bits of multiply-adds on this processor, and sooner.
bool DotIsBetter() {
  return IsBetter([](Trial& trial) { return trial.Run(kBF16DotTiles); });
}

#endif

}  // namespace

#if defined(__x86_64__)
bool BF16AmxIsBetter() {
  static const bool better = IsBetter([](Trial& trial) { return trial.RunAmx(); });
  return better;
}
#endif

const BF16Tiles& BF16MultiplyAddTiles(Isa isa) { return BATON_FOR_ISA(isa, BF16OwnTiles)(); }

const BF16Tiles& BF16TilesFor(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) {
    static const bool dot = HasBF16Dot() && DotIsBetter();
    if (dot) return kBF16DotTiles;
  }
#endif
  return BF16MultiplyAddTiles(isa);
}

const WeightFormat& BF16Format() {
  static const auto& format = *new BF16WeightFormat;  // threads may use it while the process ends
  return format;
}

}  // namespace baton::kernels::cpu
#endif
