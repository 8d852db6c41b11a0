// int8 weights with one float scale per row, multiplied as integers: the numerics cpu-i8/1.
//
//   row of x:  a[k] = x[k] * (127 / max|x|), to the nearest integer, ties to even; d = max|x| / 127
//   out[m][n] = float(sum over k of a[m][k] w[n][k]) * (d[m] * s[n]) (+ bias[n])
//
// The sum is an exact int32, whatever order, width or thread adds it up. It becomes a float once (to the
// nearest, ties to even); the product of the scales, the product with it and the sum with the bias are
// rounded once each. A row of x whose largest magnitude is below 2^-100 counts as zeros (d = 0), and one with
// an infinity or a NaN makes NaNs (d = NaN, a = 0). All instruction sets do precisely this.
#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>

#include "common/kernels/cpu/format.h"
#include "common/kernels/cpu/i8_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/kernels/cpu/format_i8.cc"
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

int32_t LargestInRow(const float* x, int64_t cols) {
  const Words words;
  const auto magnitude = hn::Set(words, 0x7FFFFFFF);
  auto largest = hn::Zero(words);
  const auto* bits = reinterpret_cast<const int32_t*>(x);
  int64_t k = 0;
  for (; k + kWords <= cols; k += kWords) {
    largest = hn::Max(largest, hn::And(hn::LoadU(words, bits + k), magnitude));
  }
  int32_t most = hn::GetLane(hn::MaxOfLanes(words, largest));
  for (; k < cols; ++k) {
    const int32_t one = std::bit_cast<int32_t>(x[k]) & 0x7FFFFFFF;
    most = one > most ? one : most;
  }
  return most;
}

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

int32_t LargestI8(const float* x, int64_t cols) { return LargestInRow(x, cols); }

// The integers of a row of x: x[k] * by, to the nearest.
void QuantizeI8(const float* x, int64_t cols, float by, int8_t* out) {
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR  // whose NearestInt is off by one just below a half
  const Floats floats;
  const hn::Rebind<int8_t, Floats> bytes;
  const hn::Rebind<int16_t, Floats> halves;
  const auto scale = hn::Set(floats, by);
  for (; k + kWords <= cols; k += kWords) {
    const auto integers = hn::NearestInt(hn::Mul(hn::LoadU(floats, x + k), scale));
    hn::StoreU(hn::DemoteTo(bytes, hn::DemoteTo(halves, integers)), bytes, out + k);
  }
#endif
  for (; k < cols; ++k) out[k] = static_cast<int8_t>(std::lrint(x[k] * by));
}

// out[n] = float(sums[n]) * (d * scales[n]) (+ bias[n]), n < 64
void ScaleI8(const int32_t* sums, float d, const float* scales, const float* bias, float* out) {
  const Floats floats;
  const Words words;
  const auto row = hn::Set(floats, d);
  for (int n = 0; n < kPanelRows; n += kWords) {
    const auto scale = hn::Mul(row, hn::LoadU(floats, scales + n));
    auto value = hn::Mul(hn::ConvertTo(floats, hn::LoadU(words, sums + n)), scale);
    if (bias != nullptr) value = hn::Add(value, hn::LoadU(floats, bias + n));
    hn::StoreU(value, floats, out + n);
  }
}

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

// Columns whose sum of products stays within 32 bits, with weights as bytes up to 255.
constexpr int64_t kMostColumns = INT_MAX / (127 * 255);
// Below this, 127 / max|x| could overflow.
constexpr float kTiny = 0x1p-100f;

// Steps of a panel in one go when several tiles share them: 16 KiB of weights, half of a first-level cache.
constexpr int64_t kSliceSteps = 64;
// How far ahead a panel is fetched that is read once.
constexpr int64_t kAhead = 4096;
// Rows of x that go through a panel together: their sums take 24 KiB.
constexpr int64_t kChunkRows = 96;

// One instruction set's functions.
struct I8Functions {
  const I8Tiles& tiles;
  int32_t (*largest)(const float* x, int64_t cols);
  void (*quantize)(const float* x, int64_t cols, float by, int8_t* out);
  void (*scale)(const int32_t* sums, float d, const float* scales, const float* bias, float* out);
};

template <Isa isa>
const I8Functions& Functions() {
  static constexpr I8Tiles kPairs = {.rows = 4,
                                     .step_bytes = kI8Step * sizeof(int16_t),
                                     .by_rows = {BATON_FOR_ISA(isa, I8Tile1), BATON_FOR_ISA(isa, I8Tile2),
                                                 BATON_FOR_ISA(isa, I8Tile3), BATON_FOR_ISA(isa, I8Tile4)}};
#if defined(__x86_64__)
  static constexpr const I8Tiles& kTiles = isa == Isa::kAvx512Vnni ? kI8VnniTiles : kPairs;
#else
  static constexpr const I8Tiles& kTiles = kPairs;
#endif
  static constexpr I8Functions functions = {.tiles = kTiles,
                                            .largest = BATON_FOR_ISA(isa, LargestI8),
                                            .quantize = BATON_FOR_ISA(isa, QuantizeI8),
                                            .scale = BATON_FOR_ISA(isa, ScaleI8)};
  return functions;
}

I8RowHead HeadOf(const std::byte* row) {
  I8RowHead head;
  std::memcpy(&head, row, sizeof head);
  return head;
}

template <Isa isa>
int64_t RowBytes(int64_t cols) {
  const auto bytes =
      static_cast<int64_t>(sizeof(I8RowHead)) + I8Steps(cols) * Functions<isa>().tiles.step_bytes;
  return (bytes + 63) / 64 * 64;
}

template <Isa isa>
int32_t Largest(const float* x, int64_t cols) {
  return Functions<isa>().largest(x, cols);
}

template <Isa isa>
void Quantize(const float* x, int64_t cols, int32_t largest_bits, std::byte* row) {
  const I8Functions& functions = Functions<isa>();
  const auto largest = std::bit_cast<float>(largest_bits);
  const bool finite = std::isfinite(largest), zero = finite && largest < kTiny;
  I8RowHead head = {.scale = zero ? 0.0f : finite ? largest / 127.0f : NAN, .start = 0};
  const int64_t steps = I8Steps(cols);
  auto* integers = reinterpret_cast<int8_t*>(row + sizeof head);
  std::memset(integers + steps * kI8Step - kI8Step, 0, kI8Step);
  if (zero || !finite) {
    std::memset(integers, 0, static_cast<size_t>(cols));
  } else {
    functions.quantize(x, cols, 127.0f / largest, integers);
  }
  int32_t sum = 0;
  for (int64_t k = 0; k < cols; ++k) sum += integers[k];
  head.start = -kI8Offset * sum;
  std::memcpy(row, &head, sizeof head);
  if (functions.tiles.step_bytes == kI8Step) return;
  // From the end, so that none is overwritten before it is read.
  for (int64_t s = steps - 1; s >= 0; --s) {
    const int8_t* four = integers + s * kI8Step;
    const int16_t pairs[kI8Step] = {four[0], four[2], four[1], four[3]};
    std::memcpy(integers + s * static_cast<int64_t>(sizeof pairs), pairs, sizeof pairs);
  }
}

// Up to kChunkRows rows of a product from row `first` on: sums [rows][64].
void SumChunk(const I8Tiles& tiles, const PanelProduct& job, int64_t first, int64_t rows, int32_t* sums) {
  const std::byte* x = job.quantized.data + first * job.quantized.stride;
  for (int64_t r = 0; r < rows; ++r) {
    std::fill_n(sums + r * kPanelRows, kPanelRows, HeadOf(x + r * job.quantized.stride).start);
  }
  // As few tiles as it takes, of sizes that differ by one at most.
  const int64_t count = (rows + tiles.rows - 1) / tiles.rows;
  const int64_t steps = I8Steps(job.depth), slice = count == 1 ? steps : kSliceSteps;
  // Tiles that share a slice share the fetching of the next one: all four lines of a step, two, or one each.
  // It goes on into the next panel.
  const int lines = count == 1 ? 4 : count <= 3 ? 2 : 1;
  for (int64_t s = 0; s < steps; s += slice) {
    for (int64_t tile = 0; tile < count; ++tile) {
      const int64_t begin = tile * rows / count, end = (tile + 1) * rows / count;
      tiles.by_rows[end - begin - 1](
          {.x = x + begin * job.quantized.stride + static_cast<int64_t>(sizeof(I8RowHead)) +
                s * tiles.step_bytes,
           .x_stride = job.quantized.stride,
           .panel = job.panel + s * kI8StepBytes,
           .steps = std::min(slice, steps - s),
           .sums = sums + begin * kPanelRows,
           .ahead = job.panel + s * kI8StepBytes +
                    (count == 1 ? kAhead : slice * (kI8StepBytes + tile * lines * kI8LineBytes)),
           .lines = count > 1 && tile * lines >= 4 ? 0 : lines});
    }
  }
}

const float* ScalesOf(const std::byte* panel, int64_t cols) {
  return reinterpret_cast<const float*>(panel + I8Steps(cols) * kI8StepBytes);
}

// Scales rows of sums: row `first` of the job is the first of them.
template <Isa isa>
void ScaleRows(const PanelProduct& job, int64_t first, int64_t rows, const int32_t* sums, int64_t stride) {
  const I8Functions& functions = Functions<isa>();
  const float* scales = ScalesOf(job.panel, job.depth);
  const auto width = static_cast<size_t>(job.width);
  float bias[kPanelRows] = {}, out[kPanelRows];
  int32_t padded[kPanelRows] = {};
  if (job.bias != nullptr) std::memcpy(bias, job.bias, width * sizeof(float));
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t* row = sums + r * stride;
    if (job.width < kPanelRows) {
      std::memcpy(padded, row, width * sizeof(int32_t));
      row = padded;
    }
    functions.scale(row, HeadOf(job.quantized.data + (first + r) * job.quantized.stride).scale, scales,
                    job.bias != nullptr ? bias : nullptr, out);
    std::memcpy(job.out + (first + r) * job.out_stride, out, width * sizeof(float));
  }
}

template <Isa isa>
void Sum(const PanelProduct& job, int32_t* sums, int64_t stride) {
  int32_t chunk[kChunkRows * kPanelRows];
  for (int64_t first = 0; first < job.rows; first += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, job.rows - first);
    SumChunk(Functions<isa>().tiles, job, first, rows, chunk);
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(chunk + r * kPanelRows, job.width, sums + (first + r) * stride);
  }
}

template <Isa isa>
void Finish(const PanelProduct& job, const int32_t* sums, int64_t stride) {
  ScaleRows<isa>(job, 0, job.rows, sums, stride);
}

template <Isa isa>
void Multiply(const PanelProduct& job) {
  int32_t sums[kChunkRows * kPanelRows];
  for (int64_t first = 0; first < job.rows; first += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, job.rows - first);
    SumChunk(Functions<isa>().tiles, job, first, rows, sums);
    ScaleRows<isa>(job, first, rows, sums, kPanelRows);
  }
}

template <Isa isa>
constexpr IntegerKernel kIntegers = {.row_bytes = &RowBytes<isa>,
                                     .largest = &Largest<isa>,
                                     .quantize = &Quantize<isa>,
                                     .sum = &Sum<isa>,
                                     .finish = &Finish<isa>};

class I8WeightFormat final : public WeightFormat {
 public:
  std::string_view name() const override { return "i8"; }
  std::string_view numerics(Isa) const override { return "cpu-i8/1"; }
  bool Takes(const WeightView& part) const override {
    const Quantization& q = part.quantization;
    return q.bits == 8 && q.group >= part.cols && q.zeros == nullptr && part.cols <= kMostColumns;
  }

  int64_t PanelBytes(int64_t cols) const override {
    return I8Steps(cols) * kI8StepBytes + kPanelRows * static_cast<int64_t>(sizeof(float));
  }
  void PackRow(const WeightView& part, int64_t from, std::byte* panel, int row) const override {
    const auto* values = static_cast<const int8_t*>(part.data) + from * part.cols;
    for (int64_t c = 0; c < part.cols; ++c) {
      panel[c / kI8Step * kI8StepBytes + row * kI8Step + c % kI8Step] = std::byte(values[c] + kI8Offset);
    }
    std::memcpy(panel + I8Steps(part.cols) * kI8StepBytes + row * sizeof(float),
                part.quantization.scales + from, sizeof(float));
  }
  void ReadRow(const std::byte* panel, int row, std::span<float> out) const override {
    const auto cols = static_cast<int64_t>(out.size());
    const float scale = ScalesOf(panel, cols)[row];
    for (int64_t c = 0; c < cols; ++c) {
      const auto byte = std::to_integer<int>(panel[c / kI8Step * kI8StepBytes + row * kI8Step + c % kI8Step]);
      // Of a row that the matrix lacks, both are 0: not the -0 of a product.
      out[static_cast<size_t>(c)] = scale * static_cast<float>(byte - kI8Offset) + 0.0f;
    }
  }
  Product ProductFor(Isa isa) const override {
    switch (isa) {
      case Isa::kBaseline:
        return &Multiply<Isa::kBaseline>;
      case Isa::kAvx2:
        return &Multiply<Isa::kAvx2>;
      case Isa::kAvx512:
        return &Multiply<Isa::kAvx512>;
      case Isa::kAvx512Vnni:
        return &Multiply<Isa::kAvx512Vnni>;
    }
    return nullptr;
  }
  const IntegerKernel* IntegersFor(Isa isa) const override {
    switch (isa) {
      case Isa::kBaseline:
        return &kIntegers<Isa::kBaseline>;
      case Isa::kAvx2:
        return &kIntegers<Isa::kAvx2>;
      case Isa::kAvx512:
        return &kIntegers<Isa::kAvx512>;
      case Isa::kAvx512Vnni:
        return &kIntegers<Isa::kAvx512Vnni>;
    }
    return nullptr;
  }
};

}  // namespace

const WeightFormat& I8Format() {
  static const I8WeightFormat format;
  return format;
}

}  // namespace baton::kernels::cpu
#endif
