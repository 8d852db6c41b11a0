#include "lab/bench/arrivals.h"

#include "lab/bench/draws.h"

namespace baton::lab::bench {

absl::Duration Arrivals::Next() {
  const uint64_t index = index_++;
  // A product, not a sum: 1/rate added a million times would drift.
  if (kind_ == Kind::kFixed) return absl::Seconds(static_cast<double>(index) / rate_);
  at_ += Exponential(seed_, Purpose::kArrival, index) / rate_;
  return absl::Seconds(at_);
}

}  // namespace baton::lab::bench
