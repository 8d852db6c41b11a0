// Amounts as people write them, and as integers: no floating point on the way, so no digit changes. Pure
// functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::router::billing {

// Digits behind the point that a decimal may have, and in front of it.
inline constexpr int kDecimalFraction = 6;
inline constexpr int kDecimalWhole = 9;

// "3", "0.075", "12.500000": in millionths. INVALID_ARGUMENT says what is wrong with the text: signs,
// exponents, spaces, separators, and leading or missing digits are refused, as is more than kDecimalFraction
// digits behind the point or kDecimalWhole in front of it.
absl::StatusOr<int64_t> ParseMillionths(std::string_view text);

// The same number as text, without zeros at the end. ParseMillionths reads it back. Not negative.
std::string FormatMillionths(int64_t millionths);

// The picounits of a unit of a currency.
inline constexpr int64_t kPicosPerUnit = 1'000'000'000'000;

// An amount of units and of picounits (10^-12, less than one unit) as text, without zeros at the end but with
// at least two digits behind the point. Neither is negative.
std::string FormatAmount(int64_t units, int64_t picos);

}  // namespace baton::router::billing
