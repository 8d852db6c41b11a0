// LeastLoaded: the decode worker with the fewest requests (running, queued and booked), the prefill workers
// by fewest tokens waiting, then fewest requests. Equals are chosen between at random, so that routers with
// the same view don't all choose the same worker.
#pragma once

#include "router/placement/policy.h"

namespace baton::router::placement {

class LeastLoaded final : public Policy {
 public:
  explicit LeastLoaded(uint64_t seed) : seed_(seed) {}
  std::string_view name() const override { return "least_loaded"; }
  Selection Select(const Request& request, const Pools& pools) override;

 private:
  const uint64_t seed_;
  uint64_t next_tie_key_ = 0;
};

}  // namespace baton::router::placement
