// v1::CacheLease on the wire. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/generation.pb.h"
#include "common/kv/index/lease_table.h"

namespace baton::transfer {

using CacheLeases = google::protobuf::RepeatedPtrField<v1::CacheLease>;

inline constexpr int kMaxCacheLeases = 8;

// The leases of a prompt of so many tokens; of each, the full blocks. INVALID_ARGUMENT: too many, one that
// goes beyond the prompt, or a TTL that is none.
absl::StatusOr<std::vector<kv::PrefixLease>> LeasesFromProto(const CacheLeases& leases,
                                                             int64_t prompt_tokens);

}  // namespace baton::transfer
