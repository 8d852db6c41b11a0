#include "router/billing/decimal.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::router::billing {
namespace {

bool AllDigits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

int64_t ValueOf(std::string_view digits) {
  int64_t value = 0;
  for (char digit : digits) value = 10 * value + (digit - '0');
  return value;
}

absl::Status NoDecimal(std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("{}; write a decimal number such as \"0.075\"", why));
}

}  // namespace

absl::StatusOr<int64_t> ParseMillionths(std::string_view text) {
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view fraction =
      point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  if (text.empty()) return NoDecimal("is empty");
  if (!AllDigits(whole) || !AllDigits(fraction)) {
    return NoDecimal("has characters besides digits and one point");
  }
  if (whole.empty() || (point != std::string_view::npos && fraction.empty())) {
    return NoDecimal("has a point without digits on both sides");
  }
  if (whole.size() > 1 && whole.front() == '0') return NoDecimal("begins with a zero that means nothing");
  if (whole.size() > kDecimalWhole) {
    return NoDecimal(fmt::format("has more than {} digits in front of the point", kDecimalWhole));
  }
  if (fraction.size() > kDecimalFraction) {
    return NoDecimal(fmt::format("has more than {} digits behind the point", kDecimalFraction));
  }
  int64_t scale = 1'000'000;
  for (size_t i = 0; i < fraction.size(); ++i) scale /= 10;
  return ValueOf(whole) * 1'000'000 + ValueOf(fraction) * scale;
}

std::string FormatMillionths(int64_t millionths) {
  std::string text = fmt::format("{}.{:06}", millionths / 1'000'000, millionths % 1'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string FormatAmount(int64_t units, int64_t picos) {
  std::string text = fmt::format("{}.{:012}", units, picos);
  const size_t least = text.find('.') + 3;
  text.erase(std::max(least, text.find_last_not_of('0') + 1));
  return text;
}

}  // namespace baton::router::billing
