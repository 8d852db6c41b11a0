// ShipForecast: what shipping a prompt's KV to one decode worker takes, by the prefill worker that it comes
// from. Of a pair that has handed off before, by what the decode worker says of it; of another one, by the
// mean of those pairs of the same decode worker that are as near: within its link's domain, or not; and by
// the domains alone where none of these is known. For one decision: the states outlive it.
#pragma once

#include <optional>

#include "router/placement/policy.h"

namespace baton::router::placement {

class ShipForecast {
 public:
  // Cost of a transfer within a domain, until one was seen, relative to one between two.
  static constexpr double kNearShare = 0.25;

  ShipForecast(const WorkerState& decode, Workers prefill);

  // Nothing is known by which pairs could differ.
  bool blind() const { return decode_.peer_costs.empty() && decode_.link_domain == 0; }
  // Seconds until the KV of `tokens` is there, beyond queue and compute. `anywhere`: what a transfer of so
  // many tokens takes between domains, where no pair is known. Nothing: neither rates nor domains say.
  std::optional<double> Seconds(const WorkerState& prefill, int64_t tokens, double anywhere) const;
  // The least over the prefill workers that the forecast was made with; `anywhere` where nothing is known.
  double Least(int64_t tokens, double anywhere) const;

 private:
  struct Cost {
    double base = 0;
    double token = 0;
    double pairs = 0;  // that it is the mean of; 0: none
  };
  const PeerCost* Find(uint64_t key) const;
  bool Near(const WorkerState& prefill) const {
    return decode_.link_domain != 0 && prefill.link_domain == decode_.link_domain;
  }

  const WorkerState& decode_;
  const Workers prefill_;
  Cost near_, far_;
};

}  // namespace baton::router::placement
