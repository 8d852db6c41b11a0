// The invariant for any answer of a model, in any format: the same tokens give the same parts however their
// text is grouped, and the parts are well-formed. The seeded test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::output {

// The first byte chooses the format, the second what the parser is told. The rest is an answer: 0xFF and a
// byte after it are a marker of the format, as the tokenizer's token where it is one, else spelled; all else
// is text. An error means that something unsound was.
absl::Status FuzzOutput(std::span<const uint8_t> bytes);

}  // namespace baton::output
