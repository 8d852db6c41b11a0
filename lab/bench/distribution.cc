#include "lab/bench/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace baton::lab::bench {
namespace {

// A length beyond this is a typing error, and would only fail later and less clearly.
constexpr double kMaxValue = 1e9;

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos) return parts;
    text.remove_prefix(colon + 1);
  }
}

bool ParseNumber(std::string_view text, double* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(*number) && *number >= 0 &&
         *number <= kMaxValue;
}

}  // namespace

Distribution Distribution::Fixed(double value) { return {Shape::kFixed, value, 0}; }

absl::StatusOr<Distribution> Distribution::Parse(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text);
  double a = 0;
  double b = 0;
  if (parts.size() == 1 && ParseNumber(parts[0], &a)) return Distribution(Shape::kFixed, a, 0);
  if (parts.size() == 2 && parts[0] == "fixed" && ParseNumber(parts[1], &a))
    return Distribution(Shape::kFixed, a, 0);
  if (parts.size() == 3 && ParseNumber(parts[1], &a) && ParseNumber(parts[2], &b)) {
    if (parts[0] == "uniform" && a <= b) return Distribution(Shape::kUniform, a, b);
    if (parts[0] == "normal") return Distribution(Shape::kNormal, a, b);
    if (parts[0] == "lognormal" && a > 0 && b <= 10) return Distribution(Shape::kLogNormal, a, b);
  }
  return absl::InvalidArgumentError(fmt::format(
      "\"{}\" is not a distribution: use N, fixed:N, uniform:A:B with A <= B, normal:MEAN:STDDEV or "
      "lognormal:MEDIAN:SIGMA with MEDIAN > 0 and SIGMA <= 10",
      text));
}

double Distribution::Sample(uint64_t seed, Purpose purpose, uint64_t index) const {
  switch (shape_) {
    case Shape::kFixed:
      return a_;
    case Shape::kUniform:
      return a_ + (b_ - a_) * Uniform(seed, purpose, index);
    case Shape::kNormal:
      return std::max(0.0, a_ + b_ * Normal(seed, purpose, index));
    case Shape::kLogNormal:
      return std::min(kMaxValue, a_ * std::exp(b_ * Normal(seed, purpose, index)));
  }
  return a_;
}

int64_t Distribution::SampleCount(uint64_t seed, Purpose purpose, uint64_t index, int64_t min) const {
  if (shape_ == Shape::kUniform) {
    // Whole numbers from A to B, all equally likely: rounding would halve the ends.
    const double low = std::ceil(a_);
    const double values = std::floor(b_) - low + 1;
    if (values >= 1) {
      return std::max(min, static_cast<int64_t>(low + std::floor(values * Uniform(seed, purpose, index))));
    }
  }
  return std::max(min, static_cast<int64_t>(std::llround(Sample(seed, purpose, index))));
}

}  // namespace baton::lab::bench
