#include "router/admission/drain_rate.h"

#include <algorithm>
#include <cmath>

namespace baton::router::admission {
namespace {

constexpr double kMemorySeconds = 10;
// Less waiting than this says nothing.
constexpr double kMinBusySeconds = 0.25;

}  // namespace

void DrainRate::Advance(absl::Time now, bool waited) {
  const absl::Time before = as_of_;
  as_of_ = std::max(as_of_, now);
  if (!waited || before == absl::InfinitePast()) return;
  const double passed = absl::ToDoubleSeconds(as_of_ - before);
  const double keep = std::exp(-passed / kMemorySeconds);
  tokens_ *= keep;
  seconds_ = seconds_ * keep + passed;
}

void DrainRate::Served(int64_t tokens) { tokens_ = std::max(0.0, tokens_ + static_cast<double>(tokens)); }

std::optional<double> DrainRate::TokensPerSecond() const {
  if (seconds_ < kMinBusySeconds || tokens_ <= 0) return std::nullopt;
  return tokens_ / seconds_;
}

}  // namespace baton::router::admission
