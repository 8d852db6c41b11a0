#include "common/command_line/option_types.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <limits>

#include "absl/strings/numbers.h"

namespace baton::command_line {

CLI::Validator WholeNumber() {
  return CLI::Validator(
      [](std::string& text) {
        uint64_t number = 0;
        const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        if (!digits || !absl::SimpleAtoi(text, &number)) {
          return fmt::format("\"{}\" is not a whole number from 0 to {}", text,
                             std::numeric_limits<uint64_t>::max());
        }
        text = std::to_string(number);
        return std::string();
      },
      "");
}

CLI::Validator Address() {
  return CLI::Validator(
      [](std::string& text) {
        if (text.starts_with("unix:")) return std::string();
        const size_t colon = text.rfind(':');
        int port = -1;
        const bool numbered = colon != std::string::npos && colon > 0 &&
                              text.find_first_not_of("0123456789", colon + 1) == std::string::npos &&
                              absl::SimpleAtoi(text.substr(colon + 1), &port) && port <= 65535;
        // A v6 address without brackets can't be told from host:port.
        const bool bare = text.find(':') != colon && text.front() != '[';
        if (!numbered || bare) {
          return fmt::format(
              "\"{}\" is not an address: use host:port, for example 127.0.0.1:8470 or [::1]:8470", text);
        }
        return std::string();
      },
      "");
}

std::string SizeText(int64_t bytes) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

}  // namespace baton::command_line
