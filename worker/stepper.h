// Stepper: one role of a worker, as the runtime runs it: the service that takes in its work, what a step of
// the engine thread does for it, and what watchers are told of it. A worker has one role today; the runtime
// takes a list. Engine thread, but for role() and service().
#pragma once

#include <grpcpp/impl/service_type.h>

#include <vector>

#include "absl/status/status.h"
#include "baton/fleet/v1/worker.pb.h"
#include "protocol/forecast/targets.h"

namespace baton::worker {

// The news of a role for its watchers.
struct RoleReport {
  fleet::v1::Load load;  // requests and tokens; the runtime adds the pool's blocks
  // What hand-offs take, by prefill worker. Empty: as before.
  std::vector<fleet::v1::PeerRate> peer_rates;
};

class Stepper {
 public:
  virtual ~Stepper() = default;
  virtual fleet::v1::Role role() const = 0;
  virtual grpc::Service& service() = 0;
  // Returns whether there is more to do at once.
  virtual bool Step() = 0;
  // How the role is now; news of rates, once. A worker that is held (step_gate.h) reports without a step.
  virtual RoleReport Report() = 0;
  // Routers hold the role to these from now on.
  virtual void SetTargets(const forecast::LatencyTargets& targets) = 0;
  // Ends all work of this role with `status`.
  virtual void Abort(const absl::Status& status) = 0;
};

}  // namespace baton::worker
