// DrainRate: how fast the queue drains while there is one, in tokens per second, as an exponential mean over
// about ten seconds of waiting. It is what turns "so many tokens are ahead" into a time. Plain, without a
// clock.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace baton::router::admission {

class DrainRate {
 public:
  // Time went on since the last call; `waited`: choices waited in the meantime.
  void Advance(absl::Time now, bool waited);
  // `tokens` that had waited were served. Negative: they came back.
  void Served(int64_t tokens);
  // Nothing until enough was seen.
  std::optional<double> TokensPerSecond() const;

 private:
  absl::Time as_of_ = absl::InfinitePast();
  double tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace baton::router::admission
