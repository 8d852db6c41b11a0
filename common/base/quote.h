// Quoted: foreign text made safe for a message or a log line: between quotes, on one line, cut at
// 100 bytes. Pure, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

inline constexpr size_t kMaxQuotedBytes = 100;

// "text", or "its first bytes"... (1234 bytes) if it is longer than `max` bytes; UTF-8 characters stay
// whole, and control characters become spaces.
std::string Quoted(std::string_view text, size_t max = kMaxQuotedBytes);

// The same without quotes, for text that is a sentence of its own.
std::string Shortened(std::string_view text, size_t max);

}  // namespace baton
