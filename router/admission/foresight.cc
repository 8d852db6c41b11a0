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
// What a small prediction is off by (the wire, a busy machine) says nothing about the large ones that refuse
// somebody: a factor is learnt from those above this share of the default, or so many seconds without one.
constexpr double kLeastShare = 0.25;
constexpr double kLeastSeconds = 0.25;

}  // namespace

void Foresight::Observe(double predicted, double actual) {
  ++outcomes_;
  const bool bounded = default_ttft_ != absl::InfiniteDuration();
  if (predicted < (bounded ? kLeastShare * absl::ToDoubleSeconds(default_ttft_) : kLeastSeconds)) return;
  const bool late = actual > predicted * margin_;
  margin_ *= late ? 1 + kStep * kShare : 1 - kStep * (1 - kShare);
  margin_ = std::clamp(margin_, kLeastMargin, kMostMargin);
}

absl::Time Foresight::Due(absl::Time deadline, absl::Time arrival, absl::Duration by_itself) const {
  if (deadline != absl::InfiniteFuture()) return deadline;
  return arrival + std::max(default_ttft_, 2 * by_itself);
}

}  // namespace baton::router::admission
