// Terminal: what a stream can show. Detected once by main() and passed on; tests make their own. Plain data.
#pragma once

#include <string>
#include <string_view>

namespace baton::cli {

struct Terminal {
  // A person watches: lines may be rewritten.
  bool interactive = false;
  bool colour = false;
  bool utf8 = false;
  // Columns.
  int width = 80;
};

// Finds out what file descriptor `fd` can show. `colour` false switches colours off (NO_COLOR).
Terminal DetectTerminal(int fd, bool colour);

enum class Style { kBold, kDim, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan };

// `text` in that style, or unchanged where there is no colour.
std::string Paint(const Terminal& terminal, Style style, std::string_view text);

// The start of `line` that takes at most `columns` columns: a line that wraps can't be rewritten. Every UTF-8
// character counts as one column, and `line` has no styles.
std::string FirstColumns(std::string line, int columns);

}  // namespace baton::cli
