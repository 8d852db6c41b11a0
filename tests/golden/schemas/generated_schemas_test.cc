// Generated schemas: whatever the bounds of a number are, what the grammar takes is within them, by
// arithmetic on the digits; and whatever the names of an object's members are, each answer comes to its end.
// Refusing a schema is right as well, by a keyword's name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/golden/schemas/schema_rig.h"
#include "tests/seed.h"

namespace baton::output {
namespace {

// A number as JSON writes it without an exponent, exactly.
struct Decimal {
  bool negative = false;
  std::string whole, fraction;  // without leading, and without trailing, zeros

  explicit Decimal(std::string_view text) {
    negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    const size_t point = text.find('.');
    whole = std::string(text.substr(0, point));
    if (point != text.npos) fraction = std::string(text.substr(point + 1));
    whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
    fraction.erase(fraction.find_last_not_of('0') + 1);
    if (whole.empty() && fraction.empty()) negative = false;
  }
  friend bool operator==(const Decimal&, const Decimal&) = default;
  friend bool operator<(const Decimal& a, const Decimal& b) {
    if (a.negative != b.negative) return a.negative;
    const bool less = a.whole.size() != b.whole.size()
                          ? a.whole.size() < b.whole.size()
                          : std::pair(a.whole, a.fraction) < std::pair(b.whole, b.fraction);
    return a.negative ? !less && a != b : less;
  }
  // step / 10^digits divides it. Up to ten digits behind the point.
  bool IsMultipleOf(uint64_t step, int digits) const {
    unsigned __int128 modulus = step;
    for (size_t i = 0; i < fraction.size(); ++i) modulus *= 10;
    unsigned __int128 rest = 0;
    for (const char digit : whole + fraction + std::string(static_cast<size_t>(digits), '0')) {
      rest = (rest * 10 + static_cast<unsigned>(digit - '0')) % modulus;
    }
    return rest == 0;
  }
};

struct Step {
  const char* text;
  uint64_t coefficient;
  int digits;
};
constexpr Step kSteps[] = {{"2", 2, 0},
                           {"3", 3, 0},
                           {"7", 7, 0},
                           {"10", 10, 0},
                           {"0.5", 5, 1},
                           {"0.1", 1, 1},
                           {"0.25", 25, 2},
                           {"0.01", 1, 2},
                           {"1000000", 1'000'000, 0},
                           {"2.5", 25, 1},
                           {"65537", 65'537, 0},
                           {"65521", 65'521, 0},
                           {"982451653", 982'451'653, 0},
                           {"0.000000003", 3, 9}};

// A schema of numbers.
struct Numbers {
  bool integer = false;
  std::optional<std::string> lower, upper;
  bool lower_exclusive = false, upper_exclusive = false;
  std::vector<Step> steps;
  std::string schema;

  bool Has(const std::string& text) const {
    const Decimal value(text);
    if (lower.has_value()) {
      const Decimal bound(*lower);
      if (value < bound || (lower_exclusive && value == bound)) return false;
    }
    if (upper.has_value()) {
      const Decimal bound(*upper);
      if (bound < value || (upper_exclusive && value == bound)) return false;
    }
    if (integer && !value.fraction.empty()) return false;
    return std::ranges::all_of(
        steps, [&](const Step& step) { return value.IsMultipleOf(step.coefficient, step.digits); });
  }
};

class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : random_(seed) {}
  std::mt19937_64& random() { return random_; }

  Numbers Next() {
    Numbers numbers;
    numbers.integer = OneIn(2);
    std::vector<std::string> lower, upper, rest;
    if (!OneIn(4)) numbers.lower = Literal();
    if (!OneIn(4)) numbers.upper = numbers.lower.has_value() && OneIn(2) ? Near(*numbers.lower) : Literal();
    // Few that nothing satisfies.
    if (numbers.lower.has_value() && numbers.upper.has_value() && !OneIn(8) &&
        Decimal(*numbers.upper) < Decimal(*numbers.lower)) {
      std::swap(numbers.lower, numbers.upper);
    }
    if (numbers.lower.has_value()) {
      numbers.lower_exclusive = OneIn(2);
      lower = Words("inimum", *numbers.lower, numbers.lower_exclusive, 'm', 'M');
    }
    if (numbers.upper.has_value()) {
      numbers.upper_exclusive = OneIn(2);
      upper = Words("aximum", *numbers.upper, numbers.upper_exclusive, 'm', 'M');
    }
    for (int i = 0; i < 3 && OneIn(3); ++i) {
      numbers.steps.push_back(kSteps[random_() % std::size(kSteps)]);
    }
    for (const Step& step : numbers.steps) rest.push_back(fmt::format(R"("multipleOf": {})", step.text));
    const std::string type = fmt::format(R"("type": "{}")", numbers.integer ? "integer" : "number");
    // Together, or in schemas that have to be combined.
    if (numbers.steps.size() > 1 || OneIn(3)) {
      std::string parts;
      for (const std::vector<std::string>& part : {lower, upper}) {
        if (!part.empty()) parts += fmt::format("{{{}}}, ", fmt::join(part, ", "));
      }
      for (const std::string& step : rest) parts += fmt::format("{{{}}}, ", step);
      numbers.schema = fmt::format(R"({{"allOf": [{}{{{}}}]}})", parts, type);
    } else {
      std::vector<std::string> words = {type};
      for (const auto& part : {lower, upper, rest}) words.insert(words.end(), part.begin(), part.end());
      numbers.schema = fmt::format("{{{}}}", fmt::join(words, ", "));
    }
    return numbers;
  }

  // A number beside `text`, as far off as the digits that people write.
  std::string Near(const std::string& text) {
    constexpr const char* kOff[] = {"", ".5", ".25", ".000001", ".0000001", ".9", "1", ".0"};
    const std::string off = kOff[random_() % std::size(kOff)];
    if ((text == "0" || text == "-0") && !off.starts_with('.')) return text;  // 01 is no number
    if (!off.starts_with('.')) return text + off;
    constexpr size_t kDigitsOfADouble = 15;
    if (text.size() + off.size() > kDigitsOfADouble) return text;  // a bound is a double
    return text.find('.') != text.npos ? text + off.substr(1) : text + off;
  }

 private:
  bool OneIn(uint32_t n) { return random_() % n == 0; }
  std::string Literal() {
    constexpr const char* kSmall[] = {"0", "0", "0", "1", "5", "9", "10", "99", "100", "12345", "1000000"};
    static const std::string kLarge[] = {
        "9007199254740991",    "9007199254740992",     "9007199254740993",         "9223372036854775807",
        "9223372036854775808", "18446744073709551615", "1" + std::string(300, '0')};
    constexpr const char* kFraction[] = {"", "", "", ".5", ".25", ".1", ".000001", ".99"};
    const std::string whole =
        OneIn(5) ? kLarge[random_() % std::size(kLarge)] : kSmall[random_() % std::size(kSmall)];
    return (OneIn(3) ? "-" : "") + whole +
           (whole.size() > 10 ? "" : kFraction[random_() % std::size(kFraction)]);
  }
  // The keywords of a bound, of today's drafts or of draft 4.
  std::vector<std::string> Words(const char* rest, const std::string& bound, bool exclusive, char small,
                                 char large) {
    if (!exclusive) return {fmt::format(R"("{}{}": {})", small, rest, bound)};
    if (OneIn(2)) return {fmt::format(R"("exclusive{}{}": {})", large, rest, bound)};
    return {fmt::format(R"("{}{}": {})", small, rest, bound),
            fmt::format(R"("exclusive{}{}": true)", large, rest)};
  }

  std::mt19937_64 random_;
};

bool IsExact(const std::string& text) {
  return !(Decimal("9007199254740991") < Decimal(text)) && !(Decimal(text) < Decimal("-9007199254740991"));
}

TEST(GeneratedSchemasTest, NoNumberIsOutsideItsBounds) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  RandomNumbers random(seed);
  SchemaRig rig;
  int enforced = 0, taken = 0, written = 0;
  for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) {
    const Numbers numbers = random.Next();
    SCOPED_TRACE(numbers.schema);
    auto start = rig.Compile(numbers.schema);
    if (!start.ok()) {
      ASSERT_TRUE(absl::IsInvalidArgument(start.status())) << start.status();
      EXPECT_THAT(std::string(start.status().message()),
                  testing::ContainsRegex("[mM]inimum|[mM]aximum|multipleOf|interval|range|no token|fuel"));
      continue;
    }
    ++enforced;
    std::vector<std::string> candidates = {"0",
                                           "-0",
                                           "0.0",
                                           "0.5",
                                           "-0.5",
                                           "1",
                                           "-1",
                                           "0.000001",
                                           "-0.0000001",
                                           "9007199254740991",
                                           "9007199254740992",
                                           "9223372036854775807",
                                           "-9223372036854775808"};
    for (const auto& bound : {numbers.lower, numbers.upper}) {
      if (!bound.has_value()) continue;
      candidates.push_back(*bound);
      for (int near = 0; near < 6; ++near) candidates.push_back(random.Near(*bound));
      if (bound->find('.') == bound->npos && bound->size() < 19) {
        for (const int64_t off : {-1, 1}) candidates.push_back(fmt::format("{}", std::stoll(*bound) + off));
      }
    }
    for (const std::string& candidate : candidates) {
      const bool takes = rig.Takes(start->Fork(), candidate);
      taken += takes ? 1 : 0;
      if (takes) {
        EXPECT_TRUE(numbers.Has(candidate)) << candidate;
      } else if (numbers.integer && candidate.find_first_of(".-") == candidate.npos && IsExact(candidate)) {
        EXPECT_FALSE(numbers.Has(candidate)) << candidate;
      }
    }
    for (int walk = 0; walk < 2; ++walk) {
      const std::string text = rig.Walk(start->Fork(), random.random());
      if (text.empty() || text.find_first_of("eE") != text.npos || Decimal(text).fraction.size() > 10)
        continue;
      ++written;
      EXPECT_TRUE(numbers.Has(text)) << text;
    }
  }
  std::printf("%d enforced, %d numbers taken, %d written\n", enforced, taken, written);
  EXPECT_GT(enforced, 120);
  EXPECT_GT(taken, 700);
  EXPECT_GT(written, 120);
}

TEST(GeneratedSchemasTest, EachAnswerComesToItsEnd) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  constexpr const char* kNames[] = {"a", "b", "ab", "x-1", ""};
  constexpr const char* kPatterns[] = {"^a$", "^a", "a$",   "^(a|b)$",    "^x-",   "^[a-c]$",
                                       ".",   "^$", "^a+$", "^(a|ab|b)$", "^x-1$", "a|b"};
  constexpr const char* kValues[] = {R"({"type": "integer"})",
                                     R"({"type": "boolean"})",
                                     R"({"enum": ["x", 1]})",
                                     "true",
                                     R"({"type": "integer", "minimum": 0, "maximum": 9})",
                                     "false"};
  const auto value = [&] { return kValues[random() % std::size(kValues)]; };
  SchemaRig rig;
  int enforced = 0, ended = 0;
  for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) {
    std::string properties, patterns, required;
    for (const char* const name : kNames) {
      if (!one_in(2)) {
        if (one_in(6)) required += fmt::format(R"({}"{}")", required.empty() ? "" : ", ", name);
        continue;
      }
      properties += fmt::format(R"({}"{}": {})", properties.empty() ? "" : ", ", name, value());
      if (one_in(2)) required += fmt::format(R"({}"{}")", required.empty() ? "" : ", ", name);
    }
    for (const char* const pattern : kPatterns) {
      if (one_in(8)) patterns += fmt::format(R"({}"{}": {})", patterns.empty() ? "" : ", ", pattern, value());
    }
    std::string schema = fmt::format(
        R"({{"type": "object", "properties": {{{}}}, "required": [{}], "patternProperties": {{{}}})",
        properties, required, patterns);
    if (one_in(2)) schema += fmt::format(R"(, "additionalProperties": {})", one_in(4) ? value() : "false");
    if (one_in(4)) schema += fmt::format(R"(, "minProperties": {})", random() % 4);
    if (one_in(4)) schema += fmt::format(R"(, "maxProperties": {})", 1 + random() % 4);
    schema += "}";
    SCOPED_TRACE(schema);
    auto start = rig.Compile(schema);
    if (!start.ok()) {
      ASSERT_TRUE(absl::IsInvalidArgument(start.status())) << start.status();
      continue;
    }
    ++enforced;
    for (int walk = 0; walk < 4; ++walk) {
      if (!rig.Walk(start->Fork(), random).empty()) ++ended;
    }
  }
  std::printf("%d enforced, %d answers ended\n", enforced, ended);
  EXPECT_GT(enforced, 40);
  EXPECT_GT(ended, 2 * enforced);
}

}  // namespace
}  // namespace baton::output
