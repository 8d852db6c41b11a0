// Variation: how much longer than usual the work of one simulated worker takes, draw by draw. Deterministic:
// a function of the model, the seed and the worker.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "common/base/random.h"
#include "lab/simulate/fleet_model.h"

namespace baton::lab::simulate {

class Variation {
 public:
  Variation(const FleetModel& model, uint64_t seed) : model_(model), seed_(seed) {}

  // A factor: exp(noise * g), g normal (Box and Muller, "A note on the generation of random normal deviates",
  // 1958).
  double Factor() {
    if (model_.noise <= 0) return 1;
    const double radius = std::sqrt(-2 * std::log(1 - UniformAt(seed_, draws_++)));
    return std::exp(model_.noise * radius * std::cos(2 * std::numbers::pi * UniformAt(seed_, draws_++)));
  }
  // Seconds that work of so many seconds takes, perhaps with a stall.
  double Taken(double seconds) {
    const double taken = seconds * Factor();
    const bool stalls = model_.stall_every > 0 && UniformAt(seed_, draws_++) * model_.stall_every < taken;
    return stalls ? taken + model_.stall_seconds : taken;
  }

 private:
  const FleetModel& model_;
  const uint64_t seed_;
  uint64_t draws_ = 0;
};

}  // namespace baton::lab::simulate
