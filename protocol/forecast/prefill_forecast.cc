#include "protocol/forecast/prefill_forecast.h"

#include <algorithm>

namespace baton::forecast {
namespace {

LinearFit<3>::Features FeaturesOf(int64_t uncached, int64_t cached) {
  const double computed = static_cast<double>(std::max<int64_t>(0, uncached));
  return {1, computed, computed * (static_cast<double>(std::max<int64_t>(0, cached)) + computed / 2)};
}

// Predictions beyond this are as bad as each other; the order of a queue must stay a finite time.
constexpr double kMaxSeconds = 86'400;

}  // namespace

double PrefillCost::Seconds(int64_t uncached, int64_t cached) const {
  const LinearFit<3>::Features x = FeaturesOf(uncached, cached);
  return base * x[0] + token * x[1] + pair * x[2];
}

PrefillForecast::PrefillForecast(PrefillCost prior, Of of)
    : fit_({prior.base, prior.token, prior.pair}, {1, 4e3, 16e6}, of) {}

double PrefillForecast::Seconds(int64_t uncached, int64_t cached) const {
  return std::min(kMaxSeconds, fit_.Predict(FeaturesOf(uncached, cached)));
}

void PrefillForecast::Observe(int64_t uncached, int64_t cached, double seconds) {
  fit_.Observe(FeaturesOf(uncached, cached), seconds);
}

PrefillCost PrefillForecast::cost() const {
  const LinearFit<3>::Features weights = fit_.weights();
  return {.base = weights[0], .token = weights[1], .pair = weights[2]};
}

VirtualDeadline DeadlineOf(absl::Time arrival, double seconds, const QueueTargets& targets, int priority) {
  seconds = std::clamp(seconds, 0.0, kMaxSeconds);
  const absl::Time from = arrival + priority * kPriorityStep;
  const double passed = 1 - targets.tail_share;
  return {.due = from + absl::Seconds(passed * std::min(targets.target, kPatience * seconds)),
          .latest = from + absl::Seconds(targets.target - seconds),
          .late = from + absl::Seconds(passed * std::max(0.0, targets.late - seconds))};
}

}  // namespace baton::forecast
