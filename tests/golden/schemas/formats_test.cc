// Formats of strings: those that are checked hold exactly, or more strictly than their standards where the
// documentation says so; all others are annotations.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/golden/schemas/schema_rig.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

class FormatsTest : public ::testing::Test {
 protected:
  bool Takes(const Json& schema, const std::string& text) {
    const auto start = rig_.Compile(schema.dump());
    EXPECT_TRUE(start.ok()) << schema << start.status();
    return start.ok() && rig_.Takes(start->Fork(), Json(text).dump());
  }
  SchemaRig rig_;
};

std::string Repeated(const std::string& part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += part;
  return all;
}

TEST_F(FormatsTest, KnownOnesHold) {
  const std::string label(63, 'a');
  const std::string longest = Repeated(label + ".", 3) + std::string(61, 'b');
  struct Case {
    std::string format;
    std::vector<std::string> taken, refused;
  };
  const std::vector<Case> cases = {
      {"time",
       {"23:59:59Z", "00:00:00.123456z", "08:30:06+23:59", "08:30:06-00:00"},
       {"23:59:60Z", "24:00:00Z", "12:60:00Z", "12:00:00", "12:00Z", "12:00:00.Z", "12:00:00+24:00",
        "12:00:00+1"}},
      {"date-time",
       {"2024-02-29T10:20:30Z", "1985-04-12t23:20:50.52z", "1937-01-01T12:00:27.87+00:20"},
       {"2023-02-29T10:20:30Z", "1998-12-31T23:59:60Z", "2024-01-01 10:20:30Z", "2024-01-01T10:20:30",
        "2024-01-01"}},
      {"email",
       {"a@b", std::string(64, 'a') + "@x.org", "a.b+c/d@x-y.org", "a@[127.0.0.1]", "a@" + label + ".org"},
       {std::string(65, 'a') + "@x.org", "a.@b", ".a@b", "a..b@c", "a", "@b", "a@", "a@-b", "a@b.", "a@b@c",
        "a@[127.0.0.256]", "a@" + label + "a.org", "a@\"b"}},
      {"hostname",
       {"a", "a-b.example", "1.2", label + ".org", longest},
       {"", "-a", "a-", "a..b", "a.", "a_b", label + "a.org", longest + "b"}},
      {"duration", {"P1D", "P1Y2M3DT4H", "PT5M", "P2W"}, {"P", "PT", "1D", "P1W2D", "P1DT"}},
      {"ipv4", {"0.0.0.0", "255.1.2.3"}, {"256.1.2.3", "1.2.3", "01.2.3.4"}},
      {"ipv6",
       {"::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2"},
       {"1:2:3:4:5:6:7", "::1::", "1:2:3:4:5:6:7:8:9", ":1"}},
      {"uuid", {"2eb8aa08-aa98-11ea-b4aa-73b441d16380"}, {"2eb8aa08aa9811eab4aa73b441d16380", ""}},
      {"uri", {"https://a.org/b?c#d", "urn:x:y"}, {"/a", "a b:c", "http://[1"}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.format);
    // Beside keywords that the compiler combines with it, and that allow all of it.
    const std::vector<Json> schemas = {
        {{"type", "string"}, {"format", one.format}},
        {{"type", {"string", "null"}}, {"format", one.format}, {"maxLength", 300}},
        {{"type", "string"}, {"pattern", "^[^\\u{80}-\\u{ffff}]*$"}, {"format", one.format}},
        {{"allOf", {{{"type", "string"}}, {{"format", one.format}}}}},
        {{"$ref", "#/components/x"}, {"components", {{"x", {{"type", "string"}, {"format", one.format}}}}}}};
    for (const Json& schema : schemas) {
      SCOPED_TRACE(schema.dump());
      for (const std::string& text : one.taken) EXPECT_TRUE(Takes(schema, text)) << text;
      for (const std::string& text : one.refused) EXPECT_FALSE(Takes(schema, text)) << text;
    }
  }
}

TEST_F(FormatsTest, DatesAreThoseOfTheCalendar) {
  const auto start = rig_.Compile(R"({"type": "string", "format": "date"})");
  ASSERT_TRUE(start.ok()) << start.status();
  for (const int year :
       {0, 1, 4, 10, 100, 400, 999, 1000, 1582, 1900, 1999, 2000, 2023, 2024, 2096, 2100, 9996, 9999}) {
    const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (int month = 0; month <= 13; ++month) {
      for (const int day : {0, 1, 9, 10, 19, 20, 28, 29, 30, 31, 32}) {
        const bool exists = year > 0 && month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
        const std::string date = fmt::format("\"{:04}-{:02}-{:02}\"", year, month, day);
        EXPECT_EQ(rig_.Takes(start->Fork(), date), exists) << date;
      }
    }
  }
}

TEST_F(FormatsTest, UnknownOnesAreAnnotations) {
  for (const char* const format : {"color", "uint32", "markdown", "uri-reference", "Date", "unknown", ""}) {
    EXPECT_TRUE(Takes({{"type", "string"}, {"format", format}}, "a \"b\"")) << format;
    const Json with = {{"type", "string"}, {"format", format}, {"pattern", "^a+$"}, {"maxLength", 2}};
    EXPECT_TRUE(Takes(with, "aa"));
    EXPECT_FALSE(Takes(with, "b"));
    EXPECT_FALSE(Takes(with, "aaa"));
  }
  const auto number = rig_.Compile(R"({"type": "integer", "format": "date"})");
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_TRUE(rig_.Takes(number->Fork(), "7"));
  // Without a type, all but strings are free.
  const auto any = rig_.Compile(R"({"format": "date"})");
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_TRUE(rig_.Takes(any->Fork(), "[7]"));
  EXPECT_TRUE(rig_.Takes(any->Fork(), R"("2024-02-29")"));
  EXPECT_FALSE(rig_.Takes(any->Fork(), R"("2023-02-29")"));
}

TEST_F(FormatsTest, OneThatIsNoStringIsRefused) {
  const auto start = rig_.Compile(R"({"properties": {"a": {"type": "string", "format": 7}}})");
  EXPECT_TRUE(absl::IsInvalidArgument(start.status()));
  EXPECT_THAT(start.status().message(), testing::HasSubstr("format is not a string"));
  // A member that only has the name.
  EXPECT_TRUE(rig_.Compile(R"({"properties": {"format": {"type": "integer"}}, "x-of": {"format": 7}})").ok());
  EXPECT_TRUE(rig_.Compile(R"({"enum": [{"format": 7}]})").ok());
}

// As many as descriptions of interfaces have.
TEST_F(FormatsTest, ManyFit) {
  Json schema = {{"type", "object"}};
  for (int i = 0; i < 60; ++i) {
    schema["properties"][fmt::format("created_at_{}", i)] = {{"type", "string"}, {"format", "date-time"}};
    schema["properties"][fmt::format("address_{}", i)] = {{"type", "string"}, {"format", "email"}};
    schema["properties"][fmt::format("host_{}", i)] = {{"type", "string"}, {"format", "hostname"}};
  }
  const auto start = rig_.Compile(schema.dump());
  EXPECT_TRUE(start.ok()) << start.status();
}

}  // namespace
}  // namespace baton::output
