// An interpreter of what may happen to a decode worker's scheduler: requests come, with and without prefill
// workers, new and resumed; hand-offs go well, break, bring damaged, late and repeated chunks; writes end
// late; some answers are penalised, some want logits, and the steps of the rest overlap; clients leave or
// stop reading; others take its blocks; it starts again with other budgets, and with drafters that are right
// for some tokens and then wrong. After every operation its blocks
// are conserved, and every token and logits digest is the engine's own. The seeded unit test and the
// libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::fuzz {

// Returns how many operations were done; an error says what was wrong after which.
absl::StatusOr<int64_t> RunDecodeSchedulerOperations(std::span<const uint8_t> bytes);

}  // namespace baton::fuzz
