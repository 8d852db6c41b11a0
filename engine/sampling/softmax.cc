#include "engine/sampling/softmax.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "common/base/check.h"

namespace baton::sampling {
namespace {

// As many independent sums as keep a vector unit busy. Part of the result's definition: another number of
// lanes is another order of additions.
constexpr size_t kLanes = 8;

// e^y for y in [-690, 0]. y = n ln 2 + r with |r| <= ln 2 / 2 (W. J. Cody and W. Waite, "Software Manual for
// the Elementary Functions", 1980); e^r by its Taylor series, whose remainder after r^13 / 13! is below
// 5e-18; 2^n by the exponent's bits.
inline double Exp(double y) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 42 bits: n times it is exact
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;
  constexpr double kRound = 0x1.8p52;  // pushes the fraction out of the significand: round to nearest
  const double shifted = y * kLog2E + kRound;
  const double n = shifted - kRound;
  const double r = (y - n * kLn2High) - n * kLn2Low;
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // The low bits of `shifted` are n in two's complement; all but its exponent bits fall off the left end.
  const uint64_t scale = (std::bit_cast<uint64_t>(shifted) << 52) + (uint64_t{1023} << 52);
  return p * std::bit_cast<double>(scale);
}

inline double WeightOf(float logit, float max, double inverse_temperature) {
  const double y = (static_cast<double>(logit) - static_cast<double>(max)) * inverse_temperature;
  const bool counts = y >= -690.0;  // false for NaN, too
  const double e = Exp(counts ? y : 0.0);
  return counts ? e : 0.0;
}

// The loop, compiled once for every machine and once for those with wider vectors. Without contraction (see
// BatonOptions.cmake) the bits are the same.
[[gnu::always_inline]] inline void FillWeights(const float* logits, size_t size, float max,
                                               double inverse_temperature, double* weights) {
  for (size_t i = 0; i < size; ++i) weights[i] = WeightOf(logits[i], max, inverse_temperature);
}

void FillWeightsPlain(const float* logits, size_t size, float max, double inverse_temperature,
                      double* weights) {
  FillWeights(logits, size, max, inverse_temperature, weights);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void FillWeightsAvx2(const float* logits, size_t size, float max,
                                             double inverse_temperature, double* weights) {
  FillWeights(logits, size, max, inverse_temperature, weights);
}
#endif

}  // namespace

float Max(std::span<const float> logits) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float lanes[kLanes];
  for (float& lane : lanes) lane = kNone;
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
    }
  }
  float max = kNone;
  for (const float lane : lanes) max = lane > max ? lane : max;
  for (; i < logits.size(); ++i) max = logits[i] > max ? logits[i] : max;
  return max;
}

double Weight(float logit, float max, double inverse_temperature) {
  return WeightOf(logit, max, inverse_temperature);
}

void Weights(std::span<const float> logits, float max, double inverse_temperature,
             std::span<double> weights) {
  BATON_CHECK_EQ(logits.size(), weights.size());
#ifdef __x86_64__
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) return FillWeightsAvx2(logits.data(), logits.size(), max, inverse_temperature, weights.data());
#endif
  FillWeightsPlain(logits.data(), logits.size(), max, inverse_temperature, weights.data());
}

double WeightSum(std::span<const float> logits, float max, double inverse_temperature) {
  double lanes[kLanes] = {};
  double chunk[64 * kLanes];
  double sum = 0;
  while (!logits.empty()) {
    const auto part = logits.first(std::min(logits.size(), std::size(chunk)));
    logits = logits.subspan(part.size());
    Weights(part, max, inverse_temperature, std::span(chunk).first(part.size()));
    size_t i = 0;
    for (; i + kLanes <= part.size(); i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += chunk[i + lane];
    }
    for (; i < part.size(); ++i) sum += chunk[i];  // the last few of all
  }
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace baton::sampling
