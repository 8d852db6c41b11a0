// The invariant for any bytes that claim to be a request trace (`baton bench` and `baton simulate`): they are
// refused with the line's number, or every entry is within its bounds. The seeded test and the libFuzzer
// target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::lab::bench {

// True if the bytes were accepted. An error means that something unsound was.
absl::StatusOr<bool> FuzzTrace(std::span<const uint8_t> bytes);

}  // namespace baton::lab::bench
