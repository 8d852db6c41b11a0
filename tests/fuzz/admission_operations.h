// An interpreter of operations on admission::Queue: bytes in, operations against the queue and against a
// model of it that is too simple to be wrong (a list, searched from end to end; deficit round robin one round
// at a time). The seeded unit test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::router::admission {

// Returns how many operations were done; an error says where queue and model part.
absl::StatusOr<int64_t> RunAdmissionOperations(std::span<const uint8_t> bytes);

}  // namespace baton::router::admission
