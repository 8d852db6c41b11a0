// The invariant for any bytes that claim to be a model's text files: they are refused with a message, or what
// was made of them keeps the promises of text. The seeded test and the libFuzzer targets both drive these.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::text {

// True if the bytes were accepted. An error means that something unsound was.
absl::StatusOr<bool> FuzzTokenizer(std::span<const uint8_t> bytes);        // tokenizer.json
absl::StatusOr<bool> FuzzTokenizerConfig(std::span<const uint8_t> bytes);  // tokenizer_config.json
absl::StatusOr<bool> FuzzChatTemplate(std::span<const uint8_t> bytes);     // chat_template.jinja

}  // namespace baton::text
