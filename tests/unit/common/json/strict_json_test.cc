#include "common/json/strict_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace baton::json {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string Refusal(const std::string& text, const Limits& limits = {}) {
  const auto parsed = Parse<ordered_json>(text, limits);
  EXPECT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  const auto sorted = Parse<nlohmann::json>(text, limits);
  EXPECT_EQ(parsed.status(), sorted.status()) << "both kinds read alike";
  return std::string(parsed.status().message());
}

TEST(StrictJsonTest, ReadsWhatTheLibraryReads) {
  for (const std::string text :
       {R"({"b": 1, "a": [true, null, -2, 0.5, "x\u00e9\n"], "c": {"a": {}, "b": []}})", "[]", "3", "\"s\"",
        "[[], [[1], {\"k\": [2]}], 18446744073709551615]"}) {
    const auto ordered = Parse<ordered_json>(text);
    ASSERT_TRUE(ordered.ok()) << ordered.status();
    EXPECT_EQ(ordered->dump(), ordered_json::parse(text).dump()) << "the order of keys is kept";
    EXPECT_EQ(*Parse<nlohmann::json>(text), nlohmann::json::parse(text));
  }
}

TEST(StrictJsonTest, RefusesWhatIsNoJson) {
  for (const std::string text : {"", "{", "{\"a\": 1,}", "[1 2]", "nul", "{} {}", "\"\xFF\"", "{a: 1}"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("not valid JSON at byte ")) << text;
  }
}

TEST(StrictJsonTest, NothingHidesBehindANul) {
  const std::string nul(1, '\0');
  EXPECT_EQ(Refusal("[1]" + nul), "not valid JSON at byte 4, in line 1");
  EXPECT_EQ(Refusal("[1]\n" + nul + "{garbage"), "not valid JSON at byte 5, in line 2");
  EXPECT_EQ(Refusal("\"a" + nul + "b\""), "not valid JSON at byte 3, in line 1");
}

TEST(StrictJsonTest, NamesTheLineThatIsNoJson) {
  EXPECT_EQ(Refusal("{\"a\": 1,\n\"b\": 2,\n}"), "not valid JSON at byte 18, in line 3");
  EXPECT_EQ(Refusal("[1e308, 1e309]"), "a number that no double holds at byte 13, in line 1");
}

TEST(StrictJsonTest, RefusesAKeyThatStandsTwice) {
  EXPECT_EQ(Refusal(R"({"a": 1, "b": 2, "a": 1})"), "key \"a\" stands twice in one object");
  EXPECT_EQ(Refusal(R"([{"x": {"k": 1, "k": 2}}])"), "key \"k\" stands twice in one object");
  EXPECT_EQ(Refusal(R"({"a": 1, "\u0061": 2})"), "key \"a\" stands twice in one object");
  EXPECT_TRUE(Parse<ordered_json>(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]})").ok())
      << "once in each object";
  const std::string name(5000, 'k');
  EXPECT_EQ(Refusal(fmt::format(R"({{"{0}": 1, "{0}": 1}})", name)),
            fmt::format("key \"{}\"... (5000 bytes) stands twice in one object", name.substr(0, 100)));
}

TEST(StrictJsonTest, BoundsTheNesting) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(Parse<ordered_json>(nested(64)).ok());
  EXPECT_EQ(Refusal(nested(65)), "nested more than 64 deep");
  EXPECT_EQ(Refusal(nested(3), {.depth = 2}), "nested more than 2 deep");
  EXPECT_EQ(Refusal(std::string(10'000'000, '[')), "nested more than 64 deep");
}

TEST(StrictJsonTest, BoundsWhatCostsMost) {
  // An object, its two members, of which one is a list: three of them, and seven values.
  const std::string text = R"({"a": [1, 2, 3, 4], "b": 5})";
  EXPECT_TRUE(Parse<ordered_json>(text, {.members = 3}).ok());
  EXPECT_EQ(Refusal(text, {.members = 2}), "more than 2 objects, lists and members");
  EXPECT_TRUE(Parse<ordered_json>("[1, 2, 3, 4, 5]", {.members = 1}).ok()) << "numbers are cheap";
  EXPECT_EQ(Refusal("[[], {}, []]", {.members = 3}), "more than 3 objects, lists and members");
}

// The bound is met while reading: what lies behind it is never looked at.
TEST(StrictJsonTest, BoundsTheValues) {
  int64_t values = 0;
  EXPECT_TRUE(Parse<ordered_json>(R"({"a": [1, 2], "b": 3})", {.values = 5}, &values).ok());
  EXPECT_EQ(values, 5);
  EXPECT_EQ(Refusal(R"({"a": [1, 2], "b": 3})", {.values = 4}), "more than 4 values");
  std::string many = "[";
  for (int i = 0; i < 100'000; ++i) many += "1,";
  many += "broken";
  EXPECT_FALSE(Parse<ordered_json>(many, {.values = 1000}, &values).ok());
  EXPECT_EQ(values, 1001);
}

// ordered_json's own parser looks each key up in the whole object: 20 billion comparisons of these.
TEST(StrictJsonTest, ManyKeysTakeLinearTime) {
  constexpr int kKeys = 200'000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) text += fmt::format("{}\"key{}\":{}", i == 0 ? "" : ",", i, i);
  text += "}";
  const auto parsed = Parse<ordered_json>(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->size(), size_t{kKeys});
  EXPECT_EQ(std::prev(parsed->end()).key(), fmt::format("key{}", kKeys - 1));
}

TEST(StrictJsonTest, AppendKeepsTheOrder) {
  ordered_json object = ordered_json::object();
  Append(&object, "b", 1);
  Append(&object, "a", ordered_json::array({2}));
  EXPECT_EQ(object.dump(), R"({"b":1,"a":[2]})");
}

}  // namespace
}  // namespace baton::json
