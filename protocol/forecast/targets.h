// LatencyTargets: what answers of a deployment should keep to. The router has them from its operator and
// tells them to the workers when it watches them: they order prefill queues and bound steps. Plain data, any
// thread.
#pragma once

namespace baton::forecast {

inline constexpr double kDefaultSloTtft = 2;     // seconds
inline constexpr double kDefaultSloTpot = 0.05;  // seconds
inline constexpr double kDefaultTailShare = 0;

struct LatencyTargets {
  double ttft = kDefaultSloTtft;  // seconds to the first token
  double tpot = kDefaultSloTpot;  // seconds per token after it
  // Shapes the order of prefill queues (QueueTargets), in [0, 1].
  double tail_share = kDefaultTailShare;

  // A worker takes no others from a router: times are above 0, and of a day at most.
  bool Sound() const {
    constexpr double kDay = 86400;
    return ttft > 0 && ttft <= kDay && tpot > 0 && tpot <= kDay && tail_share >= 0 && tail_share <= 1;
  }
  friend bool operator==(const LatencyTargets&, const LatencyTargets&) = default;
};

}  // namespace baton::forecast
