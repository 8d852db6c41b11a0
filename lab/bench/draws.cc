#include "lab/bench/draws.h"

#include <cmath>
#include <numbers>

#include "common/base/random.h"

namespace baton::lab::bench {

double Uniform(uint64_t seed, Purpose purpose, uint64_t index, uint32_t part) {
  const auto random = Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                  static_cast<uint32_t>(purpose), part},
                                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return random[0] * 0x1.0p-32;
}

double Normal(uint64_t seed, Purpose purpose, uint64_t index) {
  // 1 - u is in (0, 1], where the logarithm is finite.
  const double radius = std::sqrt(-2 * std::log(1 - Uniform(seed, purpose, index, 0)));
  return radius * std::cos(2 * std::numbers::pi * Uniform(seed, purpose, index, 1));
}

double Exponential(uint64_t seed, Purpose purpose, uint64_t index) {
  return -std::log(1 - Uniform(seed, purpose, index));
}

}  // namespace baton::lab::bench
