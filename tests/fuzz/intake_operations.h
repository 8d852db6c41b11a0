// An interpreter of what may happen to an Intake: bytes in, chunks good and bad, writes that end late, a
// release somewhere, checked against a model that keeps one expected byte per layer of a block. The seeded
// unit test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::transfer {

// Returns how many operations were done; an error says where intake and model part.
absl::StatusOr<int64_t> RunIntakeOperations(std::span<const uint8_t> bytes);

}  // namespace baton::transfer
