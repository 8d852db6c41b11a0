#include "common/transfer/lease_wire.h"

#include <fmt/format.h>

#include "common/base/ids.h"

namespace baton::transfer {

absl::StatusOr<std::vector<kv::PrefixLease>> LeasesFromProto(const CacheLeases& leases,
                                                             int64_t prompt_tokens) {
  if (leases.size() > kMaxCacheLeases) {
    return absl::InvalidArgumentError(
        fmt::format("leases: {}, at most {} are allowed", leases.size(), kMaxCacheLeases));
  }
  std::vector<kv::PrefixLease> result;
  for (int i = 0; i < leases.size(); ++i) {
    const v1::CacheLease& lease = leases.Get(i);
    if (lease.tokens() > prompt_tokens) {
      return absl::InvalidArgumentError(
          fmt::format("leases[{}].tokens: {} of a prompt that has {}", i, lease.tokens(), prompt_tokens));
    }
    if (!v1::CacheTtl_IsValid(lease.ttl())) {
      return absl::InvalidArgumentError(
          fmt::format("leases[{}].ttl: {} is not known here", i, static_cast<int>(lease.ttl())));
    }
    const bool hour = lease.ttl() == v1::CACHE_TTL_1H;
    const int64_t blocks = lease.tokens() / kBlockTokens;
    if (blocks == 0) continue;
    result.push_back({.lease_class = hour ? kv::LeaseClass::k1h : kv::LeaseClass::k5m, .blocks = blocks});
  }
  return result;
}

}  // namespace baton::transfer
