// PrefillForecast: how long a prefill takes, and when it is due. One prompt of `cached + uncached` tokens
// costs
//
//     seconds = base + token * uncached + pair * uncached * (cached + uncached / 2)
//
// because projections are linear in the computed tokens, and attention in the (computed, attended) pairs. The
// three are learnt from the measured times of prompts. Routers predict with it and prefill workers order
// their queues by it, each from its own observations. Plain data, one thread at a time.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "protocol/forecast/linear_fit.h"
#include "protocol/forecast/targets.h"

namespace baton::forecast {

struct PrefillCost {
  // A mid-size model on a current accelerator; a few observations correct it for any other.
  double base = 20e-3;
  double token = 50e-6;
  double pair = 1e-9;

  double Seconds(int64_t uncached, int64_t cached) const;
};

class PrefillForecast {
 public:
  explicit PrefillForecast(PrefillCost prior = PrefillCost(), Of of = Of::kOne);
  double Seconds(int64_t uncached, int64_t cached) const;
  void Observe(int64_t uncached, int64_t cached, double seconds);
  PrefillCost cost() const;
  int64_t observations() const { return fit_.observations(); }
  double relative_error() const { return fit_.relative_error(); }

 private:
  LinearFit<3> fit_;
};

// The order in which prefill workers serve: by virtual deadline.
//
// A prompt is due at its arrival plus kPatience times the seconds that it takes alone, but no later than the
// target: a short prompt passes long ones that came a little earlier. A prompt that has not begun by the time
// at which it would have to, in order to end within the target, can't meet it any more. It yields once to
// those that can: from then on it is due when it must begin in order to end within the late target. So the
// longest of the late prompts go first, which bounds the worst wait, and none starves: a prompt is passed
// only by prompts that arrive less than the late target after it. A step of priority is worth a second of
// waiting.
//
// Long prompts are passed most, and so the p99 grows. The tail share takes that part off all delays after the
// arrival: 0 serves the most prompts within the target, 1 is first come, first served.
inline constexpr double kPatience = 5.0;
inline constexpr absl::Duration kPriorityStep = absl::Seconds(1);

// Seconds from a prompt's arrival to the end of its prefill. Routers and prefill workers derive them from the
// same LatencyTargets.
struct QueueTargets {
  double target = 0;
  double late = 0;
  double tail_share = 0;  // in [0, 1]

  // A fortieth of the SLO is for what follows a prefill; late prompts get three times the SLO.
  static constexpr QueueTargets For(double slo_ttft_seconds, double tail_share = kDefaultTailShare) {
    return {.target = slo_ttft_seconds * 39 / 40, .late = slo_ttft_seconds * 3, .tail_share = tail_share};
  }
};

struct VirtualDeadline {
  absl::Time due = absl::InfinitePast();       // its place in the order,
  absl::Time latest = absl::InfiniteFuture();  // if it begins by then;
  absl::Time late = absl::InfinitePast();      // its place after that

  absl::Time At(absl::Time now) const { return now <= latest ? due : late; }
};
VirtualDeadline DeadlineOf(absl::Time arrival, double seconds, const QueueTargets& targets, int priority = 0);

}  // namespace baton::forecast
