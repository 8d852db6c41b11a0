// Patterns of schemas are those of ECMA-262: by cases from its text, and by random patterns that the standard
// library's reader of ECMA-262 judges.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/golden/schemas/schema_rig.h"
#include "tests/seed.h"
#include "text/output/constraint.h"
#include "text/output/schema_patterns.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

std::string SchemaOf(const std::string& pattern) {
  return Json{{"type", "string"}, {"pattern", pattern}}.dump();
}

// As a model would write it: nothing that may stand for itself is escaped.
std::string Written(const std::string& text) { return Json(text).dump(); }

class PatternsTest : public ::testing::Test {
 protected:
  SchemaRig rig_;
};

TEST_F(PatternsTest, MeanWhatTheStandardSays) {
  struct Case {
    std::string pattern;
    std::vector<std::string> taken, refused;
  };
  const std::vector<Case> cases = {
      {"^[^a&&b]$", {"c", "|"}, {"a", "b", "&"}},
      {"^[a&&b]$", {"a", "b", "&"}, {"c"}},
      {"^[^a~~b]$", {"c"}, {"a", "b", "~"}},
      {"^[^!--]$", {".", "a"}, {"!", "#", "-"}},
      {"^[a--b]$", {}, {}},  // a range that goes down
      {"^[^[a]]$", {"x]"}, {"x", "a]", "[]"}},
      {"^[[a]]$", {"[]", "a]"}, {"a", "["}},
      {"^[[:alpha:]]$", {":]", "a]", "[]"}, {"a", "b]"}},
      {"^[:alpha:]$", {":", "a", "l", "p", "h"}, {"b", "["}},
      {"^[^:digit:]$", {"5"}, {":", "d", "g"}},
      {"^[\\d-a-z]$", {"7", "-", "a", "z"}, {"b"}},
      {"^[\\w--/]$", {"a", "-", "/"}, {".", ","}},
      {"^[A-Za-z\\ ]+$", {"a b"}, {"a-b"}},
      {"^(?i:ab)c$", {"abc", "ABc", "aBc"}, {"abC"}},
      {"^[a^]$", {"a", "^"}, {"b"}},
      {"^[-a]$", {"-", "a"}, {"b"}},
      {"^[a-]$", {"-", "a"}, {"b"}},
      {"^[\\w-.]$", {"-", ".", "_", "a"}, {"/", "\xc3\xa4"}},
      {"^[^\\D5]$", {"1"}, {"5", "a"}},
      {"^[\\b]$", {"\b"}, {"b"}},
      {"^[^]$", {"a", "\xe2\x80\xa8"}, {"", "ab"}},
      {"^.$", {"a", "\xc2\x85", "\xf0\x9f\x98\x80"}, {"\n", "\r", "\xe2\x80\xa8", "\xe2\x80\xa9"}},
      {"^\\s$", {" ", "\t", "\v", "\xc2\xa0", "\xef\xbb\xbf", "\xe2\x80\xa9"}, {"\xc2\x85", "a", "\x1c"}},
      {"^\\S$", {"a", "\xc2\x85"}, {" ", "\xef\xbb\xbf"}},
      {"^\\d$", {"7"}, {"a", "\xd9\xa3"}},
      {"^\\w\\W$", {"a\xc3\xa4", "_-"}, {"\xc3\xa4-", "ab"}},
      {"^\\x41\\u0042\\u{43}\\cI\\/\\-\\_$", {"ABC\t/-_"}, {"ABC"}},
      {"^\\ud83d\\ude00$", {"\xf0\x9f\x98\x80"}, {""}},
      {"^[\\ud83d\\ude00-\\u{1f602}]$", {"\xf0\x9f\x98\x81"}, {"\xf0\x9f\x98\x84"}},
      {"^a{2}b{1,2}c{0,}$", {"aab", "aabbcc"}, {"ab", "aabbb"}},
      {"^a{,2}}]$", {"a{,2}}]"}, {"aa}]"}},
      {"^(?<year>a|b)(?:c)$", {"ac", "bc"}, {"c"}},
      {"^\\p{Lu}\\P{Lu}$",
       {"Aa",
        "\xc3\x84"
        "b"},
       {"aa", "AA"}},
      {"b", {"abc"}, {"ac"}},
      // Escaped in JSON, and no members for that.
      {"^[^\"]$", {"a", "\\", "\n", "\x1f"}, {"\""}},
      {"^[^\\\\]$", {"a", "\"", "\n"}, {"\\"}},
      {"^[^\\n\"]$", {"\t", "\\"}, {"\"", "\n"}},
      {"^[\\x00-!]$", {"\t", "!", "\n", "\x1f"}, {"\"", "\\"}},
      {"^\\p{Cc}$", {"\t", "\n", "\x1f"}, {"\"", "\\"}},
      {"^[^\\p{P}]$", {"\t", "a"}, {"\"", "\\"}},
      {"^\\W$", {"\"", "\\", "\n"}, {"a"}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.pattern);
    const auto start = rig_.Compile(SchemaOf(one.pattern));
    if (one.taken.empty()) {
      EXPECT_FALSE(start.ok());
      continue;
    }
    ASSERT_TRUE(start.ok()) << start.status();
    for (const std::string& text : one.taken) EXPECT_TRUE(rig_.Takes(start->Fork(), Written(text))) << text;
    for (const std::string& text : one.refused)
      EXPECT_FALSE(rig_.Takes(start->Fork(), Written(text))) << text;
  }
}

TEST_F(PatternsTest, WhatIsNoneIsRefusedWithItsReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"^\\Aa\\z$", "\\A is no escape of ECMA-262: use ^ and $"},
      {"\\a", "\\a is no escape"},
      {"(?i)a", "a group that ECMA-262 does not know"},
      {"(?P<n>a)", "a group that ECMA-262 does not know"},
      {"(?<a)b>c)", "a group that ECMA-262 does not know"},
      {"(?<>a)", "a group that ECMA-262 does not know"},
      {"\\p{^L}", "\\p has no name in braces"},
      {"(a)\\1", "refers back to a group"},
      {"\\pL", "\\p has no name in braces"},
      {"\\u12", "\\u has no code"},
      {"\\ud83d", "\\u has no code"},
      {"\\u{110000}", "\\u has no code"},
      {"\\x{41}", "\\x has no code"},
      {"a++", "nothing that its quantifier repeats"},
      {"*a", "nothing that its quantifier repeats"},
      {"a|*", "nothing that its quantifier repeats"},
      {"[]", "has no character"},
      {"[a", "has no end"},
      {"a\\", "ends with a backslash"},
      {"\\01", "before a digit"},
      {"a\\0", "no string with U+0000"},
  };
  for (const auto& [pattern, words] : cases) {
    const auto made = CompilerPattern(pattern);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << pattern;
    EXPECT_THAT(std::string(made.status().message()), testing::HasSubstr(words)) << pattern;
  }
  const auto named = SchemaGrammar(R"({"type": "object", "patternProperties": {"\\a": {}}})");
  EXPECT_THAT(std::string(named.status().message()), testing::HasSubstr(R"(patternProperties: "\a": )"));
}

// An object that is no schema may have a member of that name.
TEST_F(PatternsTest, AnotherDialectElsewhereIsRefusedOnlyWhereItIsReferredTo) {
  const std::string elsewhere = R"("x-files": {"pattern": "**/*.ts", "patternProperties": {"(?i)a": {}}}})";
  const auto start = rig_.Compile(R"({"type": "string", )" + elsewhere);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_TRUE(rig_.Takes(start->Fork(), R"("a")"));
  EXPECT_FALSE(rig_.Compile(R"({"$ref": "#/x-files", )" + elsewhere).ok());
}

TEST_F(PatternsTest, TheNamesOfMembersAreTranslatedToo) {
  const auto start = rig_.Compile(
      R"({"type": "object", "patternProperties": {"^[^a&&b]$": {"type": "integer"}}, "additionalProperties": false})");
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_TRUE(rig_.Takes(start->Fork(), R"({"c":1})"));
  EXPECT_FALSE(rig_.Takes(start->Fork(), R"({"a":1})"));
}

TEST_F(PatternsTest, RandomOnesAreReadAsTheStandardLibraryReadsThem) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const auto one_of = [&](const std::vector<std::string>& all) { return all[random() % all.size()]; };
  const std::vector<std::string> members = {"a",    "b", "&", "&&",  "~",   "~~",  "-",   "--",
                                            "!",    "[", "^", "a-b", "!-b", "\\d", "\\w", "\\]",
                                            "\\\\", ".", "#", "{",   "$",   ":",   ":a"};
  const std::vector<std::string> atoms = {"a",   "b",   "&",   "~",   "-",   "#",     "!",      ".",    "\\d",
                                          "\\w", "\\s", "\\S", "\\.", "\\[", "(a|&)", "(?:b~)", "(-|!)"};
  const std::vector<std::string> letters = {"a", "b", "&", "~",  "-", "!",  "[", "]", "^", "#",
                                            "5", "_", " ", "\"", ".", "\\", "{", "$", "\t"};
  int judged = 0, taken = 0;
  for (int i = 0; i < 300; ++i) {
    std::string pattern = "^(?:";
    const int atoms_of_it = 1 + static_cast<int>(random() % 3);
    for (int j = 0; j < atoms_of_it; ++j) {
      if (random() % 2 == 0) {
        pattern += random() % 2 == 0 ? "[" : "[^";
        const int members_of_it = 1 + static_cast<int>(random() % 4);
        for (int k = 0; k < members_of_it; ++k) {
          std::string member = one_of(members);
          // "[^" begins another class; a "[" before a sign begins a name to the library alone.
          if (member == "^" && pattern.ends_with('[')) member = "a";
          pattern += member;
        }
        pattern += "]";
      } else {
        pattern += one_of(atoms);
      }
      if (random() % 3 == 0) pattern += one_of({"?", "*", "+", "{1,2}", "*?"});
    }
    pattern += ")$";
    std::regex theirs;
    try {
      theirs = std::regex(pattern, std::regex::ECMAScript);
    } catch (const std::regex_error&) {
      continue;  // a range that goes down, or has a class at an end
    }
    const auto ours = rig_.Compile(SchemaOf(pattern));
    if (!ours.ok()) continue;
    ++judged;
    for (int j = 0; j < 40; ++j) {
      std::string text;
      const int length = static_cast<int>(random() % 4);
      for (int k = 0; k < length; ++k) text += one_of(letters);
      const bool matches = std::regex_search(text, theirs);
      taken += matches ? 1 : 0;
      ASSERT_EQ(rig_.Takes(ours->Fork(), Written(text)), matches)
          << "seed " << seed << ": " << pattern << " and " << Written(text);
    }
  }
  EXPECT_GT(judged, 150);
  EXPECT_GT(taken, 300);
}

}  // namespace
}  // namespace baton::output
