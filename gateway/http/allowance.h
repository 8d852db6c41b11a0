// Allowance: how often something may happen: a number at once, and so many more each second (a token bucket).
// One thread.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace baton::gateway::http {

class Allowance {
 public:
  Allowance(size_t burst, size_t per_second, absl::Time now)
      : burst_(static_cast<double>(burst)),
        per_second_(static_cast<double>(per_second)),
        left_(burst_),
        seen_(now) {}

  // False: too often.
  bool Spend(absl::Time now) {
    if (now > seen_) {
      Earn(absl::ToDoubleSeconds(now - seen_) * per_second_);
      seen_ = now;
    }
    left_ -= 1;
    return left_ >= 0;
  }
  void Earn(double more) { left_ = std::min(burst_, left_ + more); }

 private:
  const double burst_, per_second_;
  double left_;
  absl::Time seen_;
};

}  // namespace baton::gateway::http
