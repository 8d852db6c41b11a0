// The invariant for any bytes that claim to be a model's files: they are refused with a message or they are
// sound. The seeded mutation test and the libFuzzer targets both drive these.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::model {

// True if the bytes were accepted. An error means that something unsound was.
absl::StatusOr<bool> FuzzSafetensors(std::span<const uint8_t> bytes);
absl::StatusOr<bool> FuzzConfig(std::span<const uint8_t> bytes);

}  // namespace baton::model
