#include "common/command_line/option_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

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

CLI::Validator Unless(std::string (*why)(const std::string& value)) {
  return CLI::Validator([why](std::string& value) { return why(value); }, "");
}

std::optional<std::vector<int>> ParseNumbers(std::string_view text) {
  constexpr int kMaxNumber = (1 << 20) - 1;
  constexpr size_t kMaxNumbers = 1024;
  std::vector<int> numbers;
  const auto parse = [](const std::string& digits) {
    int number = -1;
    const bool plain = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
    return plain && absl::SimpleAtoi(digits, &number) && number <= kMaxNumber ? number : -1;
  };
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ',');
  for (const std::string& part : parts) {
    const size_t dash = part.find('-');
    const int first = parse(part.substr(0, dash));
    const int last = dash == std::string::npos ? first : parse(part.substr(dash + 1));
    if (first < 0 || last < first) return std::nullopt;
    if (numbers.size() + static_cast<size_t>(last - first) >= kMaxNumbers) return std::nullopt;
    for (int number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::string NumbersText(const std::vector<int>& numbers) { return absl::StrJoin(numbers, ","); }

CLI::Option* AddNumbers(CLI::App& app, const std::string& name, std::vector<int>& into,
                        const std::string& description) {
  return app
      .add_option_function<std::string>(
          name, [&into](const std::string& text) { into = *ParseNumbers(text); }, description)
      ->type_name("LIST")
      ->check(CLI::Validator(
          [](std::string& text) {
            return ParseNumbers(text).has_value()
                       ? std::string()
                       : fmt::format("\"{}\" is no list of numbers, for example 0,2-5", text);
          },
          ""));
}

CLI::Validator OneOrSeveral(std::vector<std::string> alone, std::vector<std::string> together) {
  return CLI::Validator(
      [alone = std::move(alone), together = std::move(together)](std::string& text) {
        if (std::ranges::find(alone, text) != alone.end()) return std::string();
        const std::vector<std::string> parts = absl::StrSplit(text, ',');
        for (size_t i = 0; i < parts.size(); ++i) {
          const bool twice = std::find(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i),
                                       parts[i]) != parts.begin() + static_cast<std::ptrdiff_t>(i);
          if (twice) return fmt::format("\"{}\" has {} twice", text, parts[i]);
          if (std::ranges::find(together, parts[i]) == together.end()) {
            return fmt::format("\"{}\" is neither {}, nor some of {} with commas between them", text,
                               absl::StrJoin(alone, " nor "), absl::StrJoin(together, ", "));
          }
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
