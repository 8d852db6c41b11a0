// fleet::v1::CacheLease and fleet::v1::HeldLease on the wire. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/blocks.pb.h"
#include "baton/v1/generation.pb.h"
#include "protocol/lease.h"

namespace baton::protocol {

using CacheLeases = google::protobuf::RepeatedPtrField<fleet::v1::CacheLease>;

inline constexpr int kMaxCacheLeases = 8;

// The leases of a prompt of so many tokens; of each, the full blocks. INVALID_ARGUMENT: too many, one that
// goes beyond the prompt, or a TTL that is none.
absl::StatusOr<std::vector<kv::PrefixLease>> LeasesFromProto(const CacheLeases& leases,
                                                             int64_t prompt_tokens);
void ToProto(const std::vector<kv::PrefixLease>& leases, CacheLeases* asked);

using HeldLeases = google::protobuf::RepeatedPtrField<fleet::v1::HeldLease>;

// A peer's report on the leases of so many blocks that it has found. Leases of a class that is not known
// here, and those with less than a second left, are left out. INTERNAL: what no worker tells.
absl::StatusOr<std::vector<kv::HeldLease>> HeldLeasesFromProto(const HeldLeases& leases,
                                                               int64_t found_blocks);
void ToProto(const std::vector<kv::HeldLease>& leases, HeldLeases* told);

}  // namespace baton::protocol
