#include "cli/show/terminal.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>

namespace baton::cli {
namespace {

// Select Graphic Rendition codes, ECMA-48 8.3.117.
int SgrCode(Style style) {
  switch (style) {
    case Style::kBold:
      return 1;
    case Style::kDim:
      return 2;
    case Style::kRed:
      return 31;
    case Style::kGreen:
      return 32;
    case Style::kYellow:
      return 33;
    case Style::kBlue:
      return 34;
    case Style::kMagenta:
      return 35;
    case Style::kCyan:
      return 36;
  }
  return 0;
}

}  // namespace

Terminal DetectTerminal(int fd, bool colour) {
  Terminal terminal;
  terminal.interactive = isatty(fd) == 1;
  terminal.colour = terminal.interactive && colour;
  terminal.utf8 = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  winsize size;
  if (terminal.interactive && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    terminal.width = size.ws_col;
  return terminal;
}

std::string Paint(const Terminal& terminal, Style style, std::string_view text) {
  if (!terminal.colour) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", SgrCode(style), text);
}

std::string FirstColumns(std::string line, int columns) {
  for (size_t i = 0; i < line.size(); ++i) {
    if ((line[i] & 0xC0) != 0x80 && columns-- <= 0) {
      line.resize(i);
      break;
    }
  }
  return line;
}

}  // namespace baton::cli
