#include "router/admission/foresight.h"

#include <algorithm>

namespace baton::router::admission {
namespace {

// The margin follows a quantile of actual over predicted: it grows by kStep * kShare when a first token came
// later than it allowed for, and shrinks by kStep * (1 - kShare) when not, so it rests where kShare of them
// are in time (Robbins and Monro, "A stochastic approximation method", 1951).
constexpr double kShare = 0.9;
constexpr double kStep = 0.1;
constexpr double kLeastMargin = 1, kMostMargin = 3;
// Below this what is off is the wire and the clock, which a factor says nothing about.
constexpr double kLeastSeconds = 0.05;

}  // namespace

void Foresight::Observe(double predicted, double actual) {
  ++outcomes_;
  if (predicted < kLeastSeconds) return;
  const bool late = actual > predicted * margin_;
  margin_ *= late ? 1 + kStep * kShare : 1 - kStep * (1 - kShare);
  margin_ = std::clamp(margin_, kLeastMargin, kMostMargin);
}

absl::Time Foresight::Due(absl::Time deadline, absl::Time arrival, absl::Duration by_itself) const {
  if (deadline != absl::InfiniteFuture()) return deadline;
  return arrival + std::max(default_ttft_, 2 * by_itself);
}

}  // namespace baton::router::admission
