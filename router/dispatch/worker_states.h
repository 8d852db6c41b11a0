// WorkerStates: the fleet's workers as the numbers that placement decides by, and the lists that these refer
// to. What they hold of a prompt is left to DispatchCore::Match. A snapshot for one decision; under the
// dispatcher's lock.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "router/dispatch/fit.h"
#include "router/placement/policy.h"

namespace baton::router {

struct WorkerStates {
  std::vector<placement::WorkerState> workers;
  std::deque<std::vector<placement::Booked>> booked;
  std::vector<std::shared_ptr<const std::vector<placement::PeerCost>>> peer_costs;

  explicit WorkerStates(WorkerSpan from);
};

}  // namespace baton::router
