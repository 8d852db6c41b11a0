#include "text/output/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "common/base/status.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

// Every whole number up to here is a double of its own, and so are the next ones on both sides.
constexpr double kMostExact = 9007199254740991;
// By which an exclusive bound is made an inclusive one.
constexpr double kLeastStep = 1e-9;

absl::Status BeyondExact(const char* key, const Json& value) {
  return absl::InvalidArgumentError(fmt::format(
      "{} is {}: no number beyond {:.0f} can be enforced exactly; leave it out, or ask for a string", key,
      value.dump(), kMostExact));
}

// The keywords of the lower bound of a number, and of the upper one.
struct Keys {
  const char* inclusive;
  const char* exclusive;
  double sign;  // 1; an upper bound is looked at as the lower bound of negated numbers: -1
};
constexpr Keys kLower = {"minimum", "exclusiveMinimum", 1}, kUpper = {"maximum", "exclusiveMaximum", -1};

double Number(const Json& value, double sign) { return sign * value.get<double>(); }

// Draft 4 has booleans in the place of exclusive bounds.
void ReadBooleans(Json& schema, const Keys& keys) {
  const auto exclusive = schema.find(keys.exclusive);
  if (exclusive == schema.end() || !exclusive->is_boolean()) return;
  const bool is = exclusive->get<bool>();
  const auto bound = schema.find(keys.inclusive);
  if (is && bound != schema.end()) {
    const Json value = *bound;
    schema[keys.exclusive] = value;
    schema.erase(keys.inclusive);
  } else {
    schema.erase(keys.exclusive);
  }
}

// The compiler takes `exclusive`, a whole number above it and behind it in the same digits, for allowed: as
// "0" where more than 0 is asked for and less than 1. So it is told of the next number, far below what anyone
// writes; of integers, of the next one.
double Next(double bound, bool integer) {
  if (integer) return std::floor(bound) + 1;
  return std::max(bound + kLeastStep, std::nextafter(bound, std::numeric_limits<double>::infinity()));
}

absl::Status TidyBound(Json& schema, const Keys& keys, bool integer) {
  ReadBooleans(schema, keys);
  for (const char* const key : {keys.inclusive, keys.exclusive}) {
    const auto found = schema.find(key);
    if (found == schema.end() || !found->is_number()) continue;  // the compiler says what is wrong
    const bool exclusive = key == keys.exclusive;
    const double bound = Number(*found, keys.sign);
    if (bound > kMostExact || (exclusive && bound >= kMostExact)) return BeyondExact(key, *found);
    if (bound < -kMostExact) {
      schema.erase(key);
      if (!schema.contains(keys.inclusive)) schema[keys.inclusive] = keys.sign * -kMostExact;
    } else if (exclusive && bound >= 0 && bound == std::floor(bound)) {
      const double next = keys.sign * Next(bound, integer);
      schema.erase(key);
      // The stricter one of both stays.
      const auto inclusive = schema.find(keys.inclusive);
      const bool stricter = inclusive == schema.end() || !inclusive->is_number() ||
                            Number(*inclusive, keys.sign) < keys.sign * next;
      if (stricter) schema[keys.inclusive] = next;
    }
  }
  return absl::OkStatus();
}

// A reader of JSON has a double of it, and of others beside it.
bool Inexact(const Json& value) { return value.is_number() && std::abs(value.get<double>()) > kMostExact; }

absl::Status CheckValues(const char* key, const Json& value) {
  if (Inexact(value)) return BeyondExact(key, value);
  if (value.is_structured()) {
    for (const Json& one : value) BATON_RETURN_IF_ERROR(CheckValues(key, one));
  }
  return absl::OkStatus();
}

// multipleOf as a whole number over a power of ten; none: the compiler refuses it.
struct Step {
  uint64_t coefficient = 0;
  int digits = 0;
  friend auto operator<=>(const Step&, const Step&) = default;
};

std::optional<Step> StepOf(double value) {
  constexpr int kMostDigits = 9;
  for (int digits = 0; digits <= kMostDigits; ++digits, value *= 10) {
    if (value > std::numeric_limits<uint32_t>::max()) return std::nullopt;
    if (value == std::floor(value)) return Step{static_cast<uint64_t>(value), digits};
  }
  return std::nullopt;
}

constexpr const char* kBounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

bool HasBounds(const Json& schema) {
  return std::ranges::any_of(kBounds, [&](const char* key) {
    const auto found = schema.find(key);
    return found != schema.end() && found->is_number();
  });
}

struct Steps {
  std::set<Step> all;
  int64_t count = 0;      // equal ones included
  bool combined = false;  // the compiler combines some schemas of numbers with others
  bool bounded = false;
};

void Collect(const Json& schema, Steps& steps) {
  if (!schema.is_structured()) return;
  if (schema.is_object()) {
    const auto step = schema.find("multipleOf");
    const bool has_step = step != schema.end() && step->is_number();
    if (has_step) {
      if (const auto of = StepOf(step->get<double>()); of.has_value()) steps.all.insert(*of);
      ++steps.count;
    }
    const bool numbers = has_step || HasBounds(schema);
    steps.bounded |= HasBounds(schema);
    steps.combined |=
        schema.contains("allOf") ||
        (numbers && (schema.contains("$ref") || schema.contains("anyOf") || schema.contains("oneOf")));
  }
  for (const Json& value : schema) Collect(value, steps);
}

uint64_t Aligned(const Step& step, int digits) {
  uint64_t coefficient = step.coefficient;
  for (int at = step.digits; at < digits; ++at) coefficient *= 10;
  return coefficient;
}

// The most multiples within bounds that are written out.
constexpr int64_t kMostMultiples = 512;
// A larger step has too many states beside a bound: for each remainder, for each beginning of the bound.
constexpr uint64_t kLargestStepWithin = 1000;

// Large steps within bounds: the multiples themselves, or refused.
absl::Status TidyStep(Json& schema) {
  const auto found = schema.find("multipleOf");
  if (found == schema.end() || !found->is_number()) return absl::OkStatus();
  const auto step = StepOf(found->get<double>());
  // The compiler has ten times a remainder and a digit more in 32 bits.
  if (!step.has_value() || 10 * step->coefficient + 9 * Aligned({.coefficient = 1}, step->digits) >
                               std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        fmt::format("multipleOf is {}: it has more digits than can be enforced", found->dump()));
  }
  if (step->coefficient <= kLargestStepWithin) return absl::OkStatus();
  const auto bound = [&](const char* key) -> std::optional<double> {
    const auto at = schema.find(key);
    return at != schema.end() && at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
  };
  const auto lower = std::max(bound("minimum"), bound("exclusiveMinimum"));
  const auto upper = bound("maximum").has_value() && bound("exclusiveMaximum").has_value()
                         ? std::min(bound("maximum"), bound("exclusiveMaximum"))
                         : std::max(bound("maximum"), bound("exclusiveMaximum"));
  // With one bound the numbers go on without end behind it, of any number of digits.
  if (!upper.has_value() && lower.value_or(0) >= 0) return absl::OkStatus();
  if (!lower.has_value() && upper.has_value() && *upper <= 0) return absl::OkStatus();
  const absl::Status refused = absl::InvalidArgumentError(fmt::format(
      "multipleOf is {}: beside bounds, one above {} is only enforced where it is a whole number and "
      "the bounds leave at most {} multiples",
      found->dump(), kLargestStepWithin, kMostMultiples));
  // Other types would be lost with the enum.
  bool null = false;
  Json types = schema.value("type", Json());
  if (!types.is_array()) types = Json::array({types});
  for (const Json& type : types) {
    if (type == "null") {
      null = true;
    } else if (type != "integer" && type != "number") {
      return refused;
    }
  }
  if (step->digits > 0 || schema.contains("enum") || schema.contains("const")) return refused;
  if (!lower.has_value() || !upper.has_value()) return refused;
  const auto by = static_cast<double>(step->coefficient);
  const auto first = static_cast<int64_t>(std::ceil(*lower / by)),
             last = static_cast<int64_t>(std::floor(*upper / by));
  if (last - first >= kMostMultiples) return refused;
  Json values = Json::array();
  for (int64_t i = first; i <= last; ++i) {
    const int64_t value = i * static_cast<int64_t>(step->coefficient);
    const auto is = static_cast<double>(value);
    if (is == bound("exclusiveMinimum") || is == bound("exclusiveMaximum")) continue;
    values.push_back(value);
  }
  if (values.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("multipleOf is {}: the bounds leave no multiple of it", found->dump()));
  }
  if (null) values.push_back(nullptr);
  for (const char* const key : {"type", "multipleOf"}) schema.erase(key);
  for (const char* const key : kBounds) schema.erase(key);
  schema["enum"] = std::move(values);
  return absl::OkStatus();
}

}  // namespace

absl::Status TidyNumbers(Json& schema) {
  const auto step = schema.find("multipleOf");
  if (step != schema.end() && step->is_number() && step->get<double>() <= 0) {
    return absl::InvalidArgumentError(fmt::format("multipleOf is {}, and must be more than 0", step->dump()));
  }
  const auto type = schema.find("type");
  const bool integer = type != schema.end() && *type == "integer";
  BATON_RETURN_IF_ERROR(TidyBound(schema, kLower, integer));
  BATON_RETURN_IF_ERROR(TidyBound(schema, kUpper, integer));
  for (const char* const key : {"const", "enum"}) {
    if (const auto values = schema.find(key); values != schema.end()) {
      BATON_RETURN_IF_ERROR(CheckValues(key, *values));
    }
  }
  return TidyStep(schema);
}

absl::Status CheckSteps(const Json& schema) {
  Steps steps;
  Collect(schema, steps);
  if (!steps.combined || steps.all.empty()) return absl::OkStatus();
  const uint64_t largest = std::ranges::max(steps.all, {}, &Step::coefficient).coefficient;
  if (steps.bounded && largest > kLargestStepWithin) {
    return absl::InvalidArgumentError(fmt::format(
        "multipleOf: one above {} beside bounds is not enforced in a schema whose parts have to hold "
        "together (allOf): put both into one part",
        kLargestStepWithin));
  }
  if (steps.count < 2) return absl::OkStatus();
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const int digits = std::ranges::max(steps.all, {}, &Step::digits).digits;
  uint64_t multiple = 1, factor = 1;
  for (const Step& step : steps.all) {
    const uint64_t coefficient = std::min(Aligned(step, digits), kMost);
    factor = std::max(factor, coefficient);
    multiple = std::min(std::lcm(multiple, coefficient), kMost);
  }
  // The compiler has the product of two of them, or of the common multiple of some and another, in 32 bits.
  if (factor * multiple > kMost) {
    return absl::InvalidArgumentError(
        "multipleOf: the schema has parts that have to hold together (allOf), and the common multiple of its "
        "steps is too large to be enforced");
  }
  return absl::OkStatus();
}

}  // namespace baton::output
