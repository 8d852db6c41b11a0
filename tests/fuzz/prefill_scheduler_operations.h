// An interpreter of what may happen to a prefill worker's scheduler: prompts come, are cancelled, are taken
// slowly, others take its blocks, time passes, and it starts again with other budgets. After every operation
// its blocks are conserved; every chunk and all logits are those of the engine alone. The seeded unit test
// and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::fuzz {

// Returns how many operations were done; an error says what was wrong after which.
absl::StatusOr<int64_t> RunPrefillSchedulerOperations(std::span<const uint8_t> bytes);

}  // namespace baton::fuzz
