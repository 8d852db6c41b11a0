// Authenticator: which tenant is calling, before anything is done for the call. Reads the API key and the
// client certificate of a call, finds the tenant, and counts calls that it refuses. Any thread; never waits.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>

#include "absl/status/statusor.h"
#include "router/metrics/probe.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

class Authenticator {
 public:
  // Both outlive it.
  Authenticator(const Tenants* tenants, Probe* probe) : tenants_(tenants), probe_(probe) {}

  // UNAUTHENTICATED or PERMISSION_DENIED for callers that are refused.
  absl::StatusOr<std::shared_ptr<const Tenant>> Authenticate(const grpc::ServerContextBase& context) const;
  // PERMISSION_DENIED if the tenant may not go ahead of others like that.
  absl::Status CheckPriority(const Tenant& tenant, int priority) const;

 private:
  const Tenants* const tenants_;
  Probe* const probe_;
};

}  // namespace baton::router
