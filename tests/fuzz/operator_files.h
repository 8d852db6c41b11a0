// The invariant for any bytes that claim to be a file that an operator writes for the router: the tenants
// file or the fleet file. They are refused with a message, or what was read can be used. The seeded test and
// the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::router {

// An error means that something unsound was accepted.
absl::Status RunOperatorFiles(std::span<const uint8_t> bytes);

}  // namespace baton::router
