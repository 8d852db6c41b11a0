// Tenants: whose request this is, and with it the salt that keeps one tenant's KV apart from another's. One
// tenant for now; keys, certificates, rates and quotas come into this class. Immutable, any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/kv/index/block_hash.h"

namespace baton::router {

struct Tenant {
  std::string name;
  kv::TenantSalt salt;
};

class Tenants {
 public:
  explicit Tenants(Tenant only) : only_(std::move(only)) {}
  // The tenant "default", with the salt in `file`, or with a fixed one if `file` is empty. The same salt on
  // every router of a fleet, or their prefixes are not shared.
  static absl::StatusOr<Tenants> Load(const std::string& file);

  // Who is calling.
  const Tenant& Identify() const { return only_; }

 private:
  Tenant only_;
};

}  // namespace baton::router
