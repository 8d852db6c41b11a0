// The invariant for any grammar of a client: it is refused, or answers can be drawn under it. The seeded test
// and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::output {

// The first byte chooses what the rest is: a JSON schema, a regular expression, choices (one per line), a
// Lark grammar, or the schema of a tool's arguments, whose calls are in a format that the second byte
// chooses. An error means that something unsound was.
absl::Status FuzzGrammar(std::span<const uint8_t> bytes);

}  // namespace baton::output
