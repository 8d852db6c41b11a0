#include "common/base/quote.h"

#include <fmt/format.h>

namespace baton {
namespace {

// At most `max` bytes, and no part of a character at the end.
std::string Start(std::string_view text, size_t max) {
  size_t end = text.size();
  if (end > max) {
    end = max;
    const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
    while (end > 0 && continues(end)) --end;
  }
  std::string start(text.substr(0, end));
  for (char& c : start) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = ' ';
  }
  return start;
}

}  // namespace

std::string Quoted(std::string_view text, size_t max) {
  const std::string start = Start(text, max);
  if (text.size() <= max) return fmt::format("\"{}\"", start);
  return fmt::format("\"{}\"... ({} bytes)", start, text.size());
}

std::string Shortened(std::string_view text, size_t max) {
  const std::string start = Start(text, max);
  if (text.size() <= max) return start;
  return fmt::format("{}... ({} bytes)", start, text.size());
}

}  // namespace baton
