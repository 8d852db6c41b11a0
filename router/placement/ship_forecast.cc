#include "router/placement/ship_forecast.h"

#include <algorithm>
#include <limits>

namespace baton::router::placement {

ShipForecast::ShipForecast(const WorkerState& decode, Workers prefill) : decode_(decode), prefill_(prefill) {
  if (decode_.peer_costs.empty()) return;
  for (const WorkerState& worker : prefill_) {
    const PeerCost* const known = Find(worker.key);
    if (known == nullptr) continue;
    Cost& mean = Near(worker) ? near_ : far_;
    mean.pairs += 1;
    mean.base += (known->base - mean.base) / mean.pairs;
    mean.token += (known->token - mean.token) / mean.pairs;
  }
}

const PeerCost* ShipForecast::Find(uint64_t key) const {
  if (key == 0) return nullptr;
  const auto found = std::lower_bound(decode_.peer_costs.begin(), decode_.peer_costs.end(), key,
                                      [](const PeerCost& cost, uint64_t peer) { return cost.peer < peer; });
  return found == decode_.peer_costs.end() || found->peer != key ? nullptr : &*found;
}

std::optional<double> ShipForecast::Seconds(const WorkerState& prefill, int64_t tokens,
                                            double anywhere) const {
  if (tokens <= 0) return 0;
  const double count = static_cast<double>(tokens);
  if (const PeerCost* const known = Find(prefill.key); known != nullptr) {
    return known->base + known->token * count;
  }
  const bool near = Near(prefill);
  if (const Cost& mean = near ? near_ : far_; mean.pairs > 0) return mean.base + mean.token * count;
  // Pairs of the other kind are no measure, but a bound: near ones are no slower than far ones.
  if (near && far_.pairs > 0) return std::min(kNearShare * anywhere, far_.base + far_.token * count);
  if (!near && near_.pairs > 0) return std::max(anywhere, near_.base + near_.token * count);
  if (decode_.link_domain == 0 || prefill.link_domain == 0) return std::nullopt;
  return near ? kNearShare * anywhere : anywhere;
}

double ShipForecast::Least(int64_t tokens, double anywhere) const {
  if (blind()) return anywhere;
  double least = std::numeric_limits<double>::infinity();
  for (const WorkerState& worker : prefill_) {
    least = std::min(least, Seconds(worker, tokens, anywhere).value_or(anywhere));
  }
  return prefill_.empty() ? anywhere : least;
}

}  // namespace baton::router::placement
