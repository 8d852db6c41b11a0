// RoundRobin: each in turn, by slot, whatever their load. The baseline that other policies are measured
// against.
#pragma once

#include "router/placement/policy.h"

namespace baton::router::placement {

class RoundRobin final : public Policy {
 public:
  std::string_view name() const override { return "round_robin"; }
  Selection Select(const Request& request, const Pools& pools) override;

 private:
  uint64_t turn_ = 0;
};

}  // namespace baton::router::placement
