// The invariant for any bytes that claim to be a GGUF file: they are refused with a message, or everything in
// them can be read. The seeded mutation test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::gguf {

// True if the bytes were accepted. An error means that something unsound was.
absl::StatusOr<bool> FuzzGguf(std::span<const uint8_t> bytes);

}  // namespace baton::gguf
