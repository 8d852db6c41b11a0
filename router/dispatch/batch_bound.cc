#include "router/dispatch/batch_bound.h"

#include <algorithm>
#include <cmath>

namespace baton::router {

void BatchBound::Observe(double seconds, std::optional<double>& mean) {
  constexpr double kWeight = 1.0 / 32;
  if (!std::isfinite(seconds) || seconds < 0) return;
  mean = mean.has_value() ? *mean + kWeight * (seconds - *mean) : seconds;
}

void BatchBound::ObserveFirstToken(double seconds) { Observe(seconds, first_token_); }

void BatchBound::ObserveAnswer(double seconds) { Observe(seconds, answer_); }

bool BatchBound::Allows(int64_t answers, int64_t running, int64_t requests) const {
  if (requests <= 0) return true;
  const auto run = static_cast<double>(std::clamp<int64_t>(running, 0, requests));
  const double join = static_cast<double>(requests) - run + 1;
  double expected = run + join;
  if (first_token_.value_or(0) > 0 && answer_.value_or(0) > 0) {
    const double lives = *first_token_ / *answer_;
    expected = run * std::exp(-lives) + join * -std::expm1(-lives) / lives;
  }
  return expected <= static_cast<double>(std::max<int64_t>(1, answers));
}

}  // namespace baton::router
