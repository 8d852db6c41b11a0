// Door: who is calling, before anything is done for them. Reads the key and the client certificate of a call,
// finds the tenant, and counts those that are turned away. Any thread; never waits.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>

#include "absl/status/statusor.h"
#include "router/metrics/probe.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

class Door {
 public:
  // Both outlive it.
  Door(const Tenants* tenants, Probe* probe) : tenants_(tenants), probe_(probe) {}

  // UNAUTHENTICATED or PERMISSION_DENIED for those that are not let in.
  absl::StatusOr<std::shared_ptr<const Tenant>> Enter(const grpc::ServerContextBase& context) const;
  // PERMISSION_DENIED if the tenant may not go ahead of others like that.
  absl::Status CheckPriority(const Tenant& tenant, int priority) const;

 private:
  const Tenants* const tenants_;
  Probe* const probe_;
};

}  // namespace baton::router
