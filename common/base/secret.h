// Secrets: comparing them in a time that does not reveal where they differ, drawing new ones, and reading
// them from a file. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// Takes the same time for all contents of one length.
bool SameSecret(std::string_view a, std::string_view b);

// `bytes` bytes of OpenSSL's generator, as lower-case hex.
std::string RandomHex(size_t bytes);
std::string ToHex(std::span<const std::byte> bytes);

// The file's content without white space at its end. At least `min` bytes and one line, or
// INVALID_ARGUMENT, which never shows the content. `what` is its name in messages.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, std::string_view what, size_t min);

}  // namespace baton
