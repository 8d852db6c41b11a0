// Arrivals: when the requests of an open loop come, however fast the server answers. A generator; one thread
// at a time.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton::lab::bench {

class Arrivals {
 public:
  enum class Kind { kPoisson, kFixed };

  // `rate` per second, above 0.
  Arrivals(Kind kind, double rate, uint64_t seed) : kind_(kind), rate_(rate), seed_(seed) {}

  // Since the start, never decreasing. A fixed rate starts at 0, a Poisson process after its first gap.
  absl::Duration Next();

 private:
  const Kind kind_;
  const double rate_;
  const uint64_t seed_;
  uint64_t index_ = 0;
  double at_ = 0;
};

}  // namespace baton::lab::bench
