// Authenticator: which tenant is calling, before anything is done for the call. It sees the caller's
// credentials and no transport, finds the tenant, and counts calls that it refuses. Any thread; never waits.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "router/metrics/probe.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

class Authenticator {
 public:
  // Both outlive it.
  Authenticator(const Tenants& tenants, Probe& probe) : tenants_(tenants), probe_(probe) {}

  // Metadata of a call, as Credentials::metadata_bytes counts it: some keys and trace contexts.
  static constexpr size_t kMaxMetadataBytes = 8 << 10;

  // UNAUTHENTICATED or PERMISSION_DENIED for callers that are refused; RESOURCE_EXHAUSTED for more than
  // kMaxMetadataBytes.
  absl::StatusOr<Caller> Authenticate(const Credentials& credentials) const;
  // PERMISSION_DENIED if `priority` is better than the tenant may use.
  absl::Status CheckPriority(const Tenant& tenant, int priority) const;

 private:
  const Tenants& tenants_;
  Probe& probe_;
};

}  // namespace baton::router
