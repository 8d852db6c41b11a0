// Arguments that are not one JSON object: which texts of a call the grammar of a schema takes, and what a
// parser makes of them that knows which parameters are texts.
#include "text/output/raw_arguments.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <optional>

#include "tests/unit/text/output/parsed.h"
#include "text/grammar.h"
#include "text/output/call_grammar.h"

namespace baton::output {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const text::GrammarVocabulary& Vocabulary() {
  static const auto* vocabulary = new auto(text::GrammarVocabulary::Make(*QwenLike()).value());
  return **vocabulary;
}

// The arguments of a call of "f" that is written so, as a parser reads them; nothing: the grammar of the
// schema does not take it.
std::optional<std::string> ReadArguments(std::string_view format, const std::string& schema,
                                         const std::string& text) {
  const MarkerTable& markers = Table(format);
  const auto arguments = ArgumentsGrammar(markers, schema, 0);
  EXPECT_TRUE(arguments.ok()) << arguments.status();
  if (!arguments.ok()) return std::nullopt;
  const std::vector<CallableTool> tools = {{.name = "f", .arguments = *arguments}};
  auto matcher = Vocabulary().Compile(CallGrammar(markers, tools, {.required = true}));
  EXPECT_TRUE(matcher.ok()) << matcher.status() << "\n" << *arguments;
  EXPECT_TRUE(Vocabulary().Compile(*arguments).ok()) << "a grammar by itself";
  if (!matcher.ok()) return std::nullopt;
  const auto tokens = QwenLike()->Encode(text, false);
  for (const TokenId token : *tokens) {
    if (!matcher->Push(token).ok()) return std::nullopt;
  }
  text::TokenMask mask(Vocabulary().mask_words());
  if (!matcher->Mask(mask).value()) return std::nullopt;
  const auto parsed = nlohmann::ordered_json::parse(schema);
  const auto type = [&parsed](std::string_view, std::string_view key) -> std::string {
    if (!parsed.contains("properties")) return "";
    return IsPlainText(parsed, parsed["properties"][std::string(key)]) ? "string" : "any";
  };
  const Parsed read = Parse(format, text, {.type = type});
  EXPECT_EQ(read.parts.size(), 1u) << text;
  EXPECT_EQ(read.warnings, 0) << text;
  return read.parts.size() == 1 && read.parts[0].complete ? std::optional(read.parts[0].text) : std::nullopt;
}

// A schema of one parameter, "a", that has to be there.
std::string OfA(const std::string& property) {
  return fmt::format(
      R"({{"type": "object", "properties": {{"a": {}}}, "required": ["a"], "$defs": {{"name": {{"type": "string"}}}}}})",
      property);
}
std::optional<std::string> Coder(const std::string& property, const std::string& value) {
  return ReadArguments(
      "qwen3_coder", OfA(property),
      "<tool_call>\n<function=f>\n<parameter=a>\n" + value + "\n</parameter>\n</function>\n</tool_call>");
}
std::optional<std::string> Glm(const std::string& property, const std::string& value) {
  return ReadArguments(
      "glm", OfA(property),
      "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>" + value + "</arg_value>\n</tool_call>");
}
std::optional<std::string> Python(const std::string& property, const std::string& value) {
  return ReadArguments("pythonic", OfA(property), "[f(a=" + value + ")]");
}

TEST(RawArgumentsTest, AStringIsItsText) {
  const std::string text = R"({"type": "string", "description": "any"})";
  for (const auto& write : {Coder, Glm}) {
    EXPECT_EQ(write(text, "Oslo"), R"({"a":"Oslo"})");
    EXPECT_EQ(write(text, ""), R"({"a":""})");
    EXPECT_EQ(write(text, "007"), R"({"a":"007"})");
    EXPECT_EQ(write(text, "null"), R"({"a":"null"})");
    EXPECT_EQ(write(text, "<b>\"x\"\n\n y</b> </par"), R"({"a":"<b>\"x\"\n\n y</b> </par"})");
    EXPECT_EQ(write(R"({"$ref": "#/$defs/name"})", "Oslo"), R"({"a":"Oslo"})");
    EXPECT_EQ(write(R"({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null})", "Oslo"),
              R"({"a":"Oslo"})");
    EXPECT_EQ(write(R"({"enum": ["1", "2 b"]})", "2 b"), R"({"a":"2 b"})");
    EXPECT_EQ(write(R"({"enum": ["1", "2 b"]})", "2"), std::nullopt);
    EXPECT_EQ(write(R"({"type": ["string", "null"], "minLength": 2, "maxLength": 3})", "abc"),
              R"({"a":"abc"})");
    EXPECT_EQ(write(R"({"type": "string", "minLength": 2, "maxLength": 3})", "abcd"), std::nullopt);
    EXPECT_EQ(write(R"({"type": "string", "minLength": 2, "maxLength": 3})", "a"), std::nullopt);
  }
}

// A marker that would end a value is no part of one, wherever it stands.
TEST(RawArgumentsTest, ATextHoldsNoMarkerThatEndsIt) {
  const std::string text = R"({"type": "string"})";
  EXPECT_EQ(Coder(text, "a</parameter>b"), std::nullopt);
  EXPECT_EQ(Coder(text, "a<function=b"), std::nullopt);
  EXPECT_EQ(Glm(text, "a</arg_value>b"), std::nullopt);
  EXPECT_THAT(ArgumentsGrammar(Table("glm"), OfA(R"({"enum": ["a", "</arg_value>"]})"), 0).status().message(),
              AllOf(HasSubstr("properties[\"a\"]"), HasSubstr("</arg_value>")));
}

TEST(RawArgumentsTest, OtherValuesAreJson) {
  for (const auto& write : {Coder, Glm, Python}) {
    EXPECT_EQ(write(R"({"type": "integer", "maximum": 9})", "7"), R"({"a":7})");
    EXPECT_EQ(write(R"({"type": "integer", "maximum": 9})", "10"), std::nullopt);
    EXPECT_EQ(write(R"({"type": "integer"})", "seven"), std::nullopt);
    EXPECT_EQ(write(R"({"type": "array", "items": {"type": "string"}})", R"(["x", "y"])"),
              R"({"a":["x","y"]})");
    EXPECT_EQ(write(R"({"type": "array", "items": {"$ref": "#/$defs/name"}})", "[1]"), std::nullopt);
    EXPECT_EQ(write(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", "null"), R"({"a":null})");
    // A string of which more is said, or that may be something else, stands in quotes.
    EXPECT_EQ(write(R"({"type": "string", "pattern": "^[0-9]+$"})", "\"12\""), R"({"a":"12"})");
    EXPECT_EQ(write(R"({"type": "string", "pattern": "^[0-9]+$"})", "\"x\""), std::nullopt);
    EXPECT_EQ(write(R"({"type": "string", "format": "date"})", "\"2026-01-31\""), R"({"a":"2026-01-31"})");
    EXPECT_EQ(write(R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})", "\"12\""), R"({"a":"12"})");
    EXPECT_EQ(write(R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})", "12"), R"({"a":12})");
  }
}

TEST(RawArgumentsTest, PythonHasItsOwnWords) {
  EXPECT_EQ(Python(R"({"type": "boolean"})", "True"), R"({"a":true})");
  EXPECT_EQ(Python(R"({"type": "boolean"})", "yes"), std::nullopt);
  EXPECT_EQ(Python(R"({"type": "null"})", "None"), R"({"a":null})");
  EXPECT_EQ(Python(R"({"type": "string"})", R"('it\'s "so"')"), R"({"a":"it's \"so\""})");
  EXPECT_EQ(Python(R"({"type": "string"})", R"("a\n\"b\"")"), R"({"a":"a\n\"b\""})");
  EXPECT_EQ(Python(R"({"type": "string"})", "\"\\u000b\""), std::nullopt)
      << "an escape that its reader lacks";
  EXPECT_EQ(Python(R"({"type": "string", "maxLength": 1})", "'ab'"), std::nullopt);
}

TEST(RawArgumentsTest, MembersAreThoseOfTheSchemaInItsOrder) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"},
    "c": {"type": "integer"}}, "required": ["b"]})";
  const auto python = [&](const std::string& inside) {
    return ReadArguments("pythonic", schema, "[f(" + inside + ")]").value_or("no");
  };
  EXPECT_EQ(python("b=1"), R"({"b":1})");
  EXPECT_EQ(python("a=1, b=2, c=3"), R"({"a":1,"b":2,"c":3})");
  EXPECT_EQ(python("b=2, c=3"), R"({"b":2,"c":3})");
  for (const char* const wrong : {"", "a=1", "a=1, c=3", "c=3, b=2", "b=1, b=1", "b=1, d=1", "b=1,"}) {
    EXPECT_EQ(python(wrong), "no") << wrong;
  }
  const auto glm = [&](const std::string& keys) {
    std::string text = "<tool_call>f\n";
    for (const char key : keys) text += fmt::format("<arg_key>{}</arg_key>\n<arg_value>1</arg_value>\n", key);
    return ReadArguments("glm", schema, text + "</tool_call>").value_or("no");
  };
  EXPECT_EQ(glm("b"), R"({"b":1})");
  EXPECT_EQ(glm("abc"), R"({"a":1,"b":1,"c":1})");
  for (const char* const wrong : {"", "a", "ac", "cb", "bb", "bd"}) EXPECT_EQ(glm(wrong), "no") << wrong;
}

TEST(RawArgumentsTest, WithoutPropertiesAnyAreTaken) {
  EXPECT_EQ(ReadArguments("qwen3_coder", "{}",
                          "<tool_call>\n<function=f>\n<parameter=x>\n3\n</parameter>\n<parameter=y>\n"
                          "so <so>\n</parameter>\n</function>\n</tool_call>"),
            R"({"x":3,"y":"so <so>"})");
  EXPECT_EQ(ReadArguments("glm", "{}", "<tool_call>f</tool_call>"), "{}");
  EXPECT_EQ(ReadArguments("pythonic", "{}", "[f(x=True, y='z', z={\"k\": [1]})]"),
            R"({"x":true,"y":"z","z":{"k":[1]}})");
  const std::string none = R"({"additionalProperties": false})";
  EXPECT_EQ(ReadArguments("pythonic", none, "[f()]"), "{}");
  EXPECT_EQ(ReadArguments("pythonic", none, "[f(x=1)]"), std::nullopt);
  EXPECT_EQ(ReadArguments("glm", none, "<tool_call>f\n</tool_call>"), "{}");
}

TEST(RawArgumentsTest, WhatCannotBeEnforcedIsRefusedByName) {
  const auto refused = [](std::string_view format, std::string_view schema) {
    const auto grammar = ArgumentsGrammar(Table(format), schema, 0);
    EXPECT_TRUE(absl::IsInvalidArgument(grammar.status())) << grammar.status();
    return std::string(grammar.status().message());
  };
  for (const char* const format : {"qwen3_coder", "glm", "pythonic"}) {
    EXPECT_THAT(refused(format, R"({"properties": {}, "anyOf": []})"),
                AllOf(HasSubstr("anyOf"), HasSubstr(format)));
    EXPECT_THAT(refused(format, R"({"properties": {}, "minProperties": 1})"), HasSubstr("minProperties"));
    EXPECT_THAT(refused(format, R"({"additionalProperties": {"type": "string"}})"),
                HasSubstr("additionalProperties"));
    EXPECT_THAT(refused(format, R"({"properties": {"a": {}}, "required": ["b"]})"),
                HasSubstr("required: \"b\""));
    EXPECT_THAT(refused(format, R"({"properties": {"a<b": {}}})"), HasSubstr("a<b"));
    EXPECT_THAT(refused(format, R"({"properties": {"a": {"type": "integer", "x-guidance": {}}}})"),
                AllOf(HasSubstr("properties[\"a\"]"), HasSubstr("x-guidance")));
  }
  EXPECT_THAT(refused("pythonic", R"({"properties": {"a-b": {}}})"), HasSubstr("a-b"));
  EXPECT_THAT(refused("pythonic", R"({"properties": {"a": {"enum": [["\u0001"]]}}})"),
              HasSubstr("this model's calls don't have"));
  EXPECT_TRUE(ArgumentsGrammar(Table("glm"), R"({"properties": {"a-b": {}}})", 0).ok());
  EXPECT_TRUE(CheckToolName(Format("glm"), "a/b").ok());
  EXPECT_THAT(CheckToolName(Format("pythonic"), "a/b").message(), HasSubstr("a/b"));
}

}  // namespace
}  // namespace baton::output
