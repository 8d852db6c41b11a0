#include "cli/show/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"

namespace baton::cli {
namespace {

// Three significant digits, at least as many as the integer part has.
std::string ThreeDigits(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

// Splits "1.5m" into its number and what follows it.
bool SplitNumber(std::string_view text, double* number, std::string_view* unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  if (error != std::errc() || !std::isfinite(*number) || *number < 0) return false;
  *unit = text.substr(end - text.data());
  while (!unit->empty() && unit->front() == ' ') unit->remove_prefix(1);
  return true;
}

}  // namespace

std::string ShowSeconds(double seconds) {
  if (seconds < 0) return fmt::format("-{}", ShowSeconds(-seconds));
  if (seconds == 0) return "0 ms";
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return ThreeDigits(seconds * 1e3) + " ms";
  if (seconds < 119.5) return ThreeDigits(seconds) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string ShowBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0 || value == std::floor(value)) return fmt::format("{:.0f} {}", value, kUnits[unit]);
  return fmt::format("{} {}", ThreeDigits(value), kUnits[unit]);
}

std::string ShowCount(int64_t count) {
  const std::string digits = fmt::format("{}", count);
  const size_t sign = count < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string ShowMagnitude(double count) {
  if (count < 1e3) return fmt::format("{:.0f}", count);
  if (count < 1e6) return ThreeDigits(count / 1e3) + " K";
  if (count < 1e9) return ThreeDigits(count / 1e6) + " M";
  return ThreeDigits(count / 1e9) + " B";
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  double number;
  std::string_view unit;
  if (SplitNumber(text, &number, &unit)) {
    constexpr std::array<std::pair<std::string_view, double>, 6> kUnits = {
        {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"m", 60}, {"h", 3600}}};
    for (const auto& [name, seconds] : kUnits) {
      if (unit == name && number * seconds < 1e9) return absl::Seconds(number * seconds);
    }
  }
  return absl::InvalidArgumentError(
      fmt::format("\"{}\" is not a duration: use for example 300ms, 2s, 1.5m or 1h", text));
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  double number;
  std::string_view unit;
  if (SplitNumber(text, &number, &unit)) {
    const std::string name = absl::AsciiStrToLower(absl::string_view(unit.data(), unit.size()));
    constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{{"", 1},
                                                                             {"b", 1},
                                                                             {"kib", 0x1p10},
                                                                             {"mib", 0x1p20},
                                                                             {"gib", 0x1p30},
                                                                             {"tib", 0x1p40},
                                                                             {"kb", 1e3},
                                                                             {"mb", 1e6},
                                                                             {"gb", 1e9},
                                                                             {"tb", 1e12}}};
    for (const auto& [known, bytes] : kUnits) {
      if (name == known && number * bytes < 0x1p62) return static_cast<int64_t>(number * bytes);
    }
  }
  return absl::InvalidArgumentError(
      fmt::format("\"{}\" is not a size: use for example 512MiB, 2GiB or a number of bytes", text));
}

}  // namespace baton::cli
