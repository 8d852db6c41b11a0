// Leases as workers tell them to each other: for how long, and how many of a prompt's first blocks. Plain
// data, any thread. The pool's own book of them is kv::LeaseTable.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton::kv {

// In the order of strength.
enum class LeaseClass : uint8_t { k5m, k1h };
inline constexpr int kLeaseClasses = 2;
inline absl::Duration TtlOf(LeaseClass lease_class) {
  return lease_class == LeaseClass::k1h ? absl::Hours(1) : absl::Minutes(5);
}

// The first blocks of a prompt.
struct PrefixLease {
  LeaseClass lease_class = LeaseClass::k5m;
  int64_t blocks = 0;
};

// The lease of the first blocks of a run, as one worker tells another that fetches them: what is left of it.
struct HeldLease {
  LeaseClass lease_class = LeaseClass::k5m;
  int64_t blocks = 0;
  absl::Duration left;

  bool operator==(const HeldLease&) const = default;
};

}  // namespace baton::kv
