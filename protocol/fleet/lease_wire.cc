#include "protocol/fleet/lease_wire.h"

#include <fmt/format.h>

#include "common/base/ids.h"

namespace baton::protocol {
namespace {

v1::CacheTtl TtlToProto(kv::LeaseClass lease_class) {
  return lease_class == kv::LeaseClass::k1h ? v1::CACHE_TTL_1H : v1::CACHE_TTL_5M;
}

}  // namespace

absl::StatusOr<std::vector<kv::PrefixLease>> LeasesFromProto(const CacheLeases& leases,
                                                             int64_t prompt_tokens) {
  if (leases.size() > kMaxCacheLeases) {
    return absl::InvalidArgumentError(
        fmt::format("leases: {}, at most {} are allowed", leases.size(), kMaxCacheLeases));
  }
  std::vector<kv::PrefixLease> result;
  for (int i = 0; i < leases.size(); ++i) {
    const fleet::v1::CacheLease& lease = leases.Get(i);
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

void ToProto(const std::vector<kv::PrefixLease>& leases, CacheLeases* asked) {
  for (const kv::PrefixLease& lease : leases) {
    fleet::v1::CacheLease& one = *asked->Add();
    one.set_tokens(static_cast<uint32_t>(lease.blocks * kBlockTokens));
    one.set_ttl(TtlToProto(lease.lease_class));
  }
}

absl::StatusOr<std::vector<kv::HeldLease>> HeldLeasesFromProto(const HeldLeases& leases,
                                                               int64_t found_blocks) {
  if (leases.size() > kMaxCacheLeases) {
    return absl::InternalError(
        fmt::format("tells of {} leases, more than {}", leases.size(), kMaxCacheLeases));
  }
  std::vector<kv::HeldLease> result;
  for (const fleet::v1::HeldLease& lease : leases) {
    if (lease.blocks() < 1 || lease.blocks() > found_blocks) {
      return absl::InternalError(
          fmt::format("tells of a lease of {} blocks of the {} that it found", lease.blocks(), found_blocks));
    }
    if (lease.ttl() != v1::CACHE_TTL_5M && lease.ttl() != v1::CACHE_TTL_1H) continue;
    const auto lease_class = lease.ttl() == v1::CACHE_TTL_1H ? kv::LeaseClass::k1h : kv::LeaseClass::k5m;
    const absl::Duration left = absl::Seconds(lease.seconds_left());
    if (left > kv::TtlOf(lease_class)) {
      return absl::InternalError(fmt::format("tells of a lease with {} s left, longer than its TTL of {} s",
                                             lease.seconds_left(),
                                             absl::ToInt64Seconds(kv::TtlOf(lease_class))));
    }
    if (left <= absl::ZeroDuration()) continue;
    result.push_back({.lease_class = lease_class, .blocks = int64_t{lease.blocks()}, .left = left});
  }
  return result;
}

void ToProto(const std::vector<kv::HeldLease>& leases, HeldLeases* told) {
  for (const kv::HeldLease& lease : leases) {
    fleet::v1::HeldLease& one = *told->Add();
    one.set_blocks(static_cast<uint32_t>(lease.blocks));
    one.set_ttl(TtlToProto(lease.lease_class));
    one.set_seconds_left(static_cast<uint32_t>(absl::ToInt64Seconds(lease.left)));
  }
}

}  // namespace baton::protocol
