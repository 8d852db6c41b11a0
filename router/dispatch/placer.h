// Placer: places one choice on the fleet's workers. It reads them as states, has DispatchCore match and
// select, books on the selected ones, and tells the prefix index what to expect there. It knows no queue.
// Plain state: its owner has the lock and the clock.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "router/admission/refusal.h"
#include "router/dispatch/dispatch_core.h"
#include "router/dispatch/dispatch_request.h"
#include "router/dispatch/fit.h"
#include "router/dispatch/placement.h"
#include "router/fleet/fleet.h"
#include "router/index/hot_prefixes.h"
#include "router/index/prefix_index.h"
#include "router/placement/policy.h"

namespace baton::router {

class Placer {
 public:
  // All outlive the placer; `observer` outlives the placements, too. The index may be null: then no worker is
  // known to hold anything.
  Placer(std::unique_ptr<placement::Policy> policy, absl::Duration default_ttft, fleet::Fleet& fleet,
         index::PrefixIndex* index, PlacementObserver* observer)
      : core_(std::move(policy), default_ttft, index), fleet_(fleet), observer_(observer) {}

  DispatchCore& core() { return core_; }
  const DispatchCore& core() const { return core_; }
  index::HotPrefixes& hot() { return hot_; }

  // Something runs that would correct a prediction that is too long.
  static bool Busy(const fleet::View& view);

  // The first token of a request that is not placed yet: when it is due.
  admission::FirstToken Unplaced(const Request& request) const { return core_.Estimate(request, {}); }
  // The first token of a request that has to wait, as if it were placed now, on whatever worker. `view` has a
  // decode worker.
  admission::FirstToken IfPlaced(const DispatchRequest& request, const fleet::View& view, absl::Time now);

  struct Placed {
    Placement placement;
    std::vector<SpeculativeRun> speculative;  // that the index has not been told yet
  };
  // On one of `open`, which all take it and fit. `in_time`: a first token that would come too late is
  // returned, and nothing is booked.
  std::variant<Placed, admission::FirstToken> Place(const DispatchRequest& request, bool in_time,
                                                    const fleet::View& view, WorkerSpan open, absl::Time now);

 private:
  placement::Selection Select(const DispatchRequest& request, WorkerSpan open, const fleet::View& view,
                              absl::Time now);
  // With the name of the worker that computes the prompt, for people.
  admission::FirstToken Estimate(const Request& request, const placement::Prediction& predicted,
                                 const fleet::Worker& computes) const;
  // Counts the prefix that the last Match found among the hot ones.
  void CountHotPrefix(const DispatchRequest& request, absl::Time now);

  DispatchCore core_;
  fleet::Fleet& fleet_;
  PlacementObserver* const observer_;  // null: nobody learns of placements
  index::HotPrefixes hot_;
};

}  // namespace baton::router
