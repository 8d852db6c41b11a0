// The numbers of a config.json, drawn anew: heads and sizes of any width, windows, experts, vocabularies, of
// each family. What loads runs, and gives what the reference backend gives; what does not is refused by name.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::fuzz {

// True if the model ran. An error: a refusal without words, or other numbers than the reference backend's.
// A CHECK that a file can reach ends the process.
absl::StatusOr<bool> RunModelShapes(std::span<const uint8_t> bytes);

}  // namespace baton::fuzz
