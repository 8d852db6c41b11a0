// PlacementMetrics: what placements do to the router's metrics: how many there are by reason, why no fetch is
// planned, and, in all and by worker, the prompt tokens that the index expected to be cached against those
// that were. Any thread.
#pragma once

#include <prometheus/counter.h>

#include <array>
#include <string>

#include "baton/v1/generation.pb.h"
#include "router/dispatch/placement.h"
#include "router/fleet/fleet.h"
#include "router/metrics/probe.h"
#include "router/placement/policy.h"

namespace baton::router {

class PlacementMetrics {
 public:
  // The probe outlives it. `policy` is a metric label.
  PlacementMetrics(Probe& probe, const std::string& policy);

  void Placed(const Placement& placement) const;
  // The choice has finished.
  void Finished(const Placement& placement, const v1::Finished& finished) const;
  // The fleet as it is: workers that are not in it are no longer shown.
  void Show(const fleet::View& view) const;

 private:
  Probe& probe_;
  std::array<prometheus::Counter*, placement::kReasons> placements_;       // by reason
  std::array<prometheus::Counter*, placement::kNoFetches> not_fetched_{};  // by why; null for kNone
};

}  // namespace baton::router
