// Print: the output of a command, on streams that may fail (a full disk, a pipe whose reader has gone, a
// closed descriptor). fmt::print throws then; these don't. Text that standard output can't take is an error
// of the command; lines that standard error can't take are lost and counted, and the count is printed as soon
// as standard error works again. Any thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace baton::cli {

// To `file`. If it can't be written, std::ferror(file) says so from then on.
template <typename... T>
void Print(std::FILE* file, fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  std::fwrite(text.data(), 1, text.size(), file);
}

// A part of the answer to standard output, at once. UNAVAILABLE, with the system's reason: it could not be
// written.
absl::Status Put(std::string_view text);

// Whole lines to standard error. False: they are lost.
bool Tell(std::string_view text);
template <typename... T>
bool Tell(fmt::format_string<T...> format, T&&... values) requires(sizeof...(T) > 0) {
  return Tell(std::string_view(fmt::format(format, std::forward<T>(values)...)));
}

// Lines that Tell() lost and has not reported yet.
int64_t LostLines();

}  // namespace baton::cli
