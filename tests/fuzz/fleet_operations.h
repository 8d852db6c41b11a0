// An interpreter of what may happen to the router's picture of its fleet: endpoints come and go, workers say
// anything at all in their Watch streams, requests are booked, accepted, refused and released. After every
// operation what may be used is in the view and nothing else, the numbers make sense, and the prefix index
// agrees with itself. The seeded test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::router::fleet {

// Returns how many operations were done; an error says what was wrong after which.
absl::StatusOr<int64_t> RunFleetOperations(std::span<const uint8_t> bytes);

}  // namespace baton::router::fleet
