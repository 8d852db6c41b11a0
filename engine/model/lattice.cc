#include "engine/model/lattice.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace baton::model {
namespace {

// Below this, a scale could be a number without all of its bits; divided by a block of columns it still has
// them.
constexpr float kLeastScale = 0x1p-100f, kLeastDivided = 0x1p-120f;
constexpr int kMostFactor = 16, kMostValue = 15, kMostInteger = 127;

// The nearest integer, ties to even, of a number below 2^22: what is left of it beside 1.5 * 2^23.
constexpr float kLarge = 12582912.0f;
float WholeNumber(float value) { return (value + kLarge) - kLarge; }

// The next number up with 16 significant bits.
float ShortUp(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0xFF) & ~uint32_t{0xFF});
}

struct Group : LatticeGroup {
  float error = std::numeric_limits<float>::infinity();
};

// The range of a value less its zero.
struct Steps {
  float lowest, highest;
  Steps(int factor, int zero)
      : lowest(static_cast<float>(std::max(-zero, -(kMostInteger / factor)))),
        highest(static_cast<float>(std::min(kMostValue - zero, kMostInteger / factor))) {}
};

// A half of a group. Compilers make of it what the instruction set has, with the same bits: each operation
// rounds by itself, as none of the sets below has a fused multiply-add.
constexpr int64_t kLanes = 8;
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;
constexpr int64_t kParts = kLatticeGroup / kLanes;
// Code that is compiled once for each instruction set; only pointers to lanes cross functions of several.
#define BATON_INLINE [[gnu::always_inline]] inline

BATON_INLINE float Sum(const Lanes& sums) {
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The factor and the zero with the smallest sum of squared errors, which is always added up in the same
// order. numbers [kParts]: of a group in units of the row's scale; 0s fill it up.
BATON_INLINE Group BestGroup(const Lanes* numbers) {
  Lanes low = numbers[0], high = numbers[0];
  for (int64_t p = 1; p < kParts; ++p) {
    low = numbers[p] < low ? numbers[p] : low;
    high = numbers[p] > high ? numbers[p] : high;
  }
  float lowest = 0, highest = 0;
  for (int64_t i = 0; i < kLanes; ++i) {
    lowest = std::min(lowest, low[i]);
    highest = std::max(highest, high[i]);
  }
  const float range = highest - lowest;
  Group best;
  if (range == 0) return {{.factor = 1, .zero = 0}, 0};
  // Around the factor that holds the range, and well below it: a few numbers at the ends cost less than
  // coarse steps for all.
  const float whole = range / kMostValue;
  const int most = std::clamp(static_cast<int>(std::ceil(whole)), 1, kMostFactor);
  const int least = std::clamp(static_cast<int>(whole * 0.65f), 1, most);
  const int middle = static_cast<int>(WholeNumber(-lowest / range * kMostValue));
  for (int factor = most; factor >= least; --factor) {
    const float size = static_cast<float>(factor), inverse = 1.0f / size;
    Lanes nearest[kParts];
    for (int64_t p = 0; p < kParts; ++p) nearest[p] = (numbers[p] * inverse + kLarge) - kLarge;
    for (const int zero : {middle, middle - 1, middle + 1}) {
      if (zero < 0 || zero > kMostValue) continue;
      const Steps steps(factor, zero);
      const Lanes lowest_step = Lanes{} + steps.lowest, highest_step = Lanes{} + steps.highest;
      Lanes sums = {};
      for (int64_t p = 0; p < kParts; ++p) {
        Lanes step = nearest[p] < lowest_step ? lowest_step : nearest[p];
        step = step > highest_step ? highest_step : step;
        const Lanes error = numbers[p] - size * step;
        sums += error * error;
      }
      const float error = Sum(sums);
      if (error < best.error) best = {{factor, zero}, error};
    }
  }
  return best;
}

BATON_INLINE float Round(std::span<const float> row, const LatticeRow& out) {
  const auto cols = static_cast<int64_t>(row.size());
  const int64_t groups = LatticeGroups(cols);
  const float scale = LatticeScale(row);
  if (scale == 0) {
    std::ranges::fill(out.factors, uint8_t{1});
    std::ranges::fill(out.zeros, uint8_t{0});
    std::ranges::fill(out.values, uint8_t{0});
    return 0;
  }
  const float inverse = 1.0f / scale;
  int common = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * kLatticeGroup, count = std::min(cols - begin, kLatticeGroup);
    Lanes numbers[kParts] = {};
    std::memcpy(numbers, row.data() + begin, static_cast<size_t>(count) * sizeof(float));
    for (Lanes& part : numbers) part *= inverse;
    const Group best = BestGroup(numbers);
    common = std::gcd(common, best.factor);
    out.factors[static_cast<size_t>(g)] = static_cast<uint8_t>(best.factor);
    out.zeros[static_cast<size_t>(g)] = static_cast<uint8_t>(best.zero);
  }
  for (int64_t g = 0; g < groups; ++g) {
    const int factor = out.factors[static_cast<size_t>(g)], zero = out.zeros[static_cast<size_t>(g)];
    // In units of the row's scale times what the factors have in common: the limit of int8 is as far away.
    const Steps steps(factor / common, zero);
    const float by = 1.0f / static_cast<float>(factor);
    for (int64_t c = g * kLatticeGroup; c < std::min(cols, (g + 1) * kLatticeGroup); ++c) {
      const float step = WholeNumber(row[static_cast<size_t>(c)] * inverse * by);
      const int value = static_cast<int>(std::clamp(step, steps.lowest, steps.highest)) + zero;
      out.values[static_cast<size_t>(c)] = static_cast<uint8_t>(value);
    }
  }
  for (uint8_t& factor : out.factors) factor = static_cast<uint8_t>(factor / common);
  return scale * static_cast<float>(common);
}
BATON_INLINE LatticeGroup BestOf(std::span<const float> numbers) {
  Lanes lanes[kParts] = {};
  std::memcpy(lanes, numbers.data(), numbers.size_bytes());
  return BestGroup(lanes);
}

LatticeGroup BestByBaseline(std::span<const float> numbers) { return BestOf(numbers); }
#if defined(__x86_64__)
[[gnu::target("avx2")]] LatticeGroup BestByAvx2(std::span<const float> numbers) { return BestOf(numbers); }
#endif

float RoundByBaseline(std::span<const float> row, const LatticeRow& out) { return Round(row, out); }
#if defined(__x86_64__)
[[gnu::target("avx2")]] float RoundByAvx2(std::span<const float> row, const LatticeRow& out) {
  return Round(row, out);
}
#endif

#undef BATON_INLINE

bool HasAvx2() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  return avx2;
#else
  return false;
#endif
}

}  // namespace

float LatticeScale(std::span<const float> row) {
  const auto cols = static_cast<int64_t>(row.size());
  float largest = 0, widest = 0;
  for (int64_t g = 0; g < LatticeGroups(cols); ++g) {
    float low = 0, high = 0;
    for (int64_t c = g * kLatticeGroup; c < std::min(cols, (g + 1) * kLatticeGroup); ++c) {
      low = std::min(low, row[static_cast<size_t>(c)]);
      high = std::max(high, row[static_cast<size_t>(c)]);
    }
    largest = std::max({largest, -low, high});
    widest = std::max(widest, high - low);
  }
  if (largest < kLeastScale) return 0;
  return ShortUp(std::max(largest / kMostInteger, widest / static_cast<float>(kMostFactor * kMostValue)));
}

LatticeGroup BestLatticeGroup(std::span<const float> numbers) {
#if defined(__x86_64__)
  if (HasAvx2()) return BestByAvx2(numbers);
#endif
  return BestByBaseline(numbers);
}

uint8_t LatticeValue(float number, const LatticeGroup& group) {
  const Steps steps(group.factor, group.zero);
  const float step = WholeNumber(number * (1.0f / static_cast<float>(group.factor)));
  return static_cast<uint8_t>(static_cast<int>(std::clamp(step, steps.lowest, steps.highest)) + group.zero);
}

float RoundToLattice(std::span<const float> row, const LatticeRow& out) {
#if defined(__x86_64__)
  if (HasAvx2()) return RoundByAvx2(row, out);
#endif
  return RoundByBaseline(row, out);
}

std::optional<float> LatticeOf(std::span<const float> scales, std::span<uint8_t> factors) {
  if (std::ranges::all_of(scales, [](float scale) { return scale == 0; })) {
    std::ranges::fill(factors, uint8_t{1});
    return 0.0f;
  }
  int lowest = INT_MAX;  // exponent of the last bit of them all
  for (const float scale : scales) {
    if (!(scale >= kLeastDivided) || !std::isfinite(scale)) return std::nullopt;
    lowest = std::min(lowest, std::ilogb(scale) - 23);
  }
  uint64_t common = 0;
  for (const float scale : scales) {
    if (std::ilogb(scale) - 23 - lowest > 8) return std::nullopt;  // beyond 16 times the smallest
    common = std::gcd(common, static_cast<uint64_t>(std::ldexp(double{scale}, -lowest)));
  }
  for (size_t g = 0; g < scales.size(); ++g) {
    const uint64_t factor = static_cast<uint64_t>(std::ldexp(double{scales[g]}, -lowest)) / common;
    if (factor > kMostFactor) return std::nullopt;
    factors[g] = static_cast<uint8_t>(factor);
  }
  const double scale = std::ldexp(static_cast<double>(common), lowest);
  if (static_cast<double>(static_cast<float>(scale)) != scale) return std::nullopt;
  return static_cast<float>(scale);
}

}  // namespace baton::model
