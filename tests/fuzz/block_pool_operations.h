// An interpreter of operations on BlockPool: bytes in, operations against the pool and against a model of it
// that is too simple to be wrong (vectors, searched from end to end). The seeded unit test and the libFuzzer
// target both drive it, so that a crash found by one is replayed by the other.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::kv {

// The first byte sets the pool's size, the rest are operations until they run out. Returns how many were
// done; an error says where pool and model part.
absl::StatusOr<int64_t> RunBlockPoolOperations(std::span<const uint8_t> bytes);

}  // namespace baton::kv
