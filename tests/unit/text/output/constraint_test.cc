#include "text/output/constraint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "text/grammar.h"
#include "text/output/schema_names.h"
#include "text/output/structural_tags.h"
#include "text/tokenizer.h"

namespace baton::output {
namespace {

using testing::HasSubstr;

class ConstraintTest : public testing::Test {
 protected:
  // True if the whole of `text` obeys the grammar.
  bool Obeys(const absl::StatusOr<std::string>& grammar, std::string_view text) {
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    auto matcher = vocabulary_->Compile(*grammar);
    EXPECT_TRUE(matcher.ok()) << matcher.status() << *grammar;
    const auto tokens = tokenizer_->Encode(text, false);
    for (const TokenId token : *tokens) {
      if (!matcher->Push(token).ok()) return false;
    }
    text::TokenMask mask(vocabulary_->mask_words());
    return *matcher->Mask(mask);
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_ =
      text::GrammarVocabulary::Make(*tokenizer_).value();
};

TEST_F(ConstraintTest, ASchemaIsEnforcedWithLimitedWhiteSpace) {
  const auto grammar = SchemaGrammar(
      R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}, "required": ["b"]})");
  EXPECT_TRUE(Obeys(grammar, R"({"b": 3, "a": [null, "x/y"]})"));
  EXPECT_TRUE(Obeys(grammar, "{\n    \"b\": 3\n}"));
  EXPECT_FALSE(Obeys(grammar, "{\n\n\"b\": 3}")) << "white space without end";
  EXPECT_FALSE(Obeys(grammar, R"({"b": 3)"));
  EXPECT_FALSE(Obeys(grammar, R"({"b": "3"})"));
  EXPECT_FALSE(Obeys(grammar, R"({"a": 1, "b": 3})"));  // the schema's order
  EXPECT_FALSE(Obeys(grammar, "{" + std::string(65, ' ') + R"("b": 3})"));
  EXPECT_TRUE(Obeys(SchemaGrammar("true"), R"([1, {"a": {}}])"));
}

TEST_F(ConstraintTest, ASchemaThatIsNoneIsNamed) {
  EXPECT_THAT(SchemaGrammar("{\"a\": ").status().message(), HasSubstr("JSON"));
  EXPECT_THAT(SchemaGrammar("[]").status().message(), HasSubstr("object"));
  EXPECT_THAT(SchemaGrammar(R"({"x-guidance": {"lenient": true}})").status().message(),
              HasSubstr("x-guidance"));
  std::string wide = R"({"properties": {)";
  for (int i = 0; i <= kMaxSchemaProperties; ++i)
    wide += fmt::format(R"({}"p{}": {{}})", i == 0 ? "" : ",", i);
  EXPECT_THAT(SchemaGrammar(wide + "}}").status().message(), HasSubstr("513"));
  for (const std::string step : {"-1", "0", "-0.5"}) {
    EXPECT_THAT(
        SchemaGrammar(R"({"properties": {"a": {"items": {"multipleOf": )" + step + "}}}}").status().message(),
        HasSubstr("multipleOf is " + step));
  }
  EXPECT_TRUE(
      SchemaGrammar(R"({"enum": [{"multipleOf": -1}], "properties": {"multipleOf": {"multipleOf": 2}}})")
          .ok());
  const auto never = SchemaGrammar("false");
  EXPECT_TRUE(never.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(vocabulary_->Compile(*never).status()));
}

TEST_F(ConstraintTest, BoundsOfNumbersAreExactOrRefused) {
  const auto positive = SchemaGrammar(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5})");
  EXPECT_FALSE(Obeys(positive, "0"));
  EXPECT_FALSE(Obeys(positive, "0.0"));
  EXPECT_TRUE(Obeys(positive, "0.25"));
  const auto apart =
      SchemaGrammar(R"({"allOf": [{"exclusiveMinimum": 0}, {"type": "number", "maximum": 0.5}]})");
  EXPECT_FALSE(Obeys(apart, "0"));
  const auto negative = SchemaGrammar(R"({"type": "number", "minimum": -0.5, "exclusiveMaximum": 0})");
  EXPECT_FALSE(Obeys(negative, "-0"));
  EXPECT_TRUE(Obeys(negative, "-0.25"));
  // Generators write these bounds for integers of 64 bits.
  const auto large = SchemaGrammar(
      R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})");
  EXPECT_TRUE(Obeys(large, "9007199254740991"));
  EXPECT_TRUE(Obeys(large, "-12"));
  EXPECT_FALSE(Obeys(large, "9223372036854775808"));
  const std::pair<const char*, const char*> refused[] = {
      {R"({"type": "integer", "minimum": 1e300})", "minimum is 1e+300"},
      {R"({"exclusiveMinimum": 9007199254740991})", "exclusiveMinimum is 9007199254740991"},
      {R"({"const": 9007199254740993})", "const is 9007199254740993"},
      {R"({"enum": ["a", [{"b": -9223372036854775807}]]})", "enum is -9223372036854775807"},
      {R"({"allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}]})", "multipleOf: "},
      {R"({"$ref": "#/parts/n", "parts": {"n": {"type": "integer", "minimum": 1e300}}})",
       "minimum is 1e+300"},
      {R"({"const": 18446744073709551617})", "const is 1.8446744073709552e+19"},
      {R"({"type": "integer", "multipleOf": 982451653})", "multipleOf is 982451653"},
      {R"({"type": "number", "multipleOf": 1e-10})", "multipleOf is 1e-10"},
      {R"({"allOf": [{"multipleOf": 65521}, {"multipleOf": 65519}, {"multipleOf": 3}]})", "multipleOf: "},
      {R"({"allOf": [{"multipleOf": 100000}, {"type": "integer", "multipleOf": 100000}]})", "multipleOf: "},
      {R"({"components": {"schemas": {"M": {"properties": {"enum": {"minimum": 1e300}}}}}})",
       "minimum is 1e+300"},
      {R"({"type": "integer", "multipleOf": 65537, "minimum": -9, "maximum": 900000000})",
       "multipleOf is 65537"},
      {R"({"type": "integer", "multipleOf": 65536, "minimum": 1, "maximum": 65535})", "no multiple"},
      {R"({"allOf": [{"minimum": 0, "maximum": 1000000}, {"multipleOf": 65536}]})", "multipleOf: "}};
  for (const auto& [schema, says] : refused) {
    EXPECT_THAT(SchemaGrammar(schema).status().message(), HasSubstr(says)) << schema;
  }
  const auto steps =
      SchemaGrammar(R"({"type": "integer", "multipleOf": 65536, "exclusiveMinimum": 0, "maximum": 200000})");
  for (const char* const taken : {"65536", "131072", "196608"}) EXPECT_TRUE(Obeys(steps, taken));
  for (const char* const not_taken : {"0", "65537", "262144"}) EXPECT_FALSE(Obeys(steps, not_taken));
  EXPECT_TRUE(Obeys(
      SchemaGrammar(
          R"({"type": ["integer", "null"], "multipleOf": 65536, "exclusiveMinimum": 0, "maximum": 200000})"),
      "null"));
  // As generators write them: each by itself.
  EXPECT_TRUE(Obeys(
      SchemaGrammar(
          R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"type": "integer", "multipleOf": 3600, "minimum": 0},
                        "c": {"anyOf": [{"type": "integer", "multipleOf": 1024}, {"type": "null"}]}},
                        "$defs": {"a": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 100}}})"),
      R"({"a": 0.25, "b": 7200, "c": 2048})"));
}

TEST_F(ConstraintTest, PatternsThatOnlyPropertiesMatchArePartOfThem) {
  // The compiler alone takes a comma behind the last member, and then knows no name.
  const auto grammar = SchemaGrammar(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "t": {"enum": ["x"]}}, "required": ["a", "t"],
          "patternProperties": {"^a$": {"minimum": 0, "maximum": 9}, "^(t|a[bc]?)$": true}, "additionalProperties": false})");
  EXPECT_TRUE(Obeys(grammar, R"({"a": 7, "t": "x"})"));
  EXPECT_FALSE(Obeys(grammar, R"({"a": 10, "t": "x"})")) << "both schemas hold";
  EXPECT_TRUE(Obeys(grammar, R"({"a": 1, "t": "x", "ab": null})"));
  const auto required = SchemaGrammar(
      R"({"type": "object", "patternProperties": {"^a$": {"type": "integer"}}, "required": ["a"], "additionalProperties": false})");
  EXPECT_TRUE(Obeys(required, R"({"a": 7})"));
  EXPECT_FALSE(Obeys(required, R"({"a": "x"})"));
  using testing::ElementsAre;
  using testing::Optional;
  EXPECT_THAT(NamesOf("^a$", 9), Optional(ElementsAre("a")));
  EXPECT_THAT(NamesOf("^(?:x-1|)$", 9), Optional(ElementsAre("", "x-1")));
  EXPECT_THAT(NamesOf("^a[b-d]?\\.$", 9), Optional(ElementsAre("a.", "ab.", "ac.", "ad.")));
  for (const char* const more : {"^a",    "a$",     "a",           "^a+$",     "^a.$",
                                 "^a|b$", "^\\d$",  "^[^a]$",      "^(a$",     "^a)$",
                                 "^[a$",  "^a{2}$", "^(?=a)a$",    "^[(]a|b$", "^[z-a]$",
                                 "^[]$",  "^a\\$",  "^\xc3\xa9?$", "^[a-z]$",  "^[a-c][a-c][a-c]$"}) {
    EXPECT_EQ(NamesOf(more, 9), std::nullopt) << more;
  }
}

// A name that is written in another way is the same name, and its schema holds.
TEST_F(ConstraintTest, ANameIsWrittenInOneWay) {
  for (const char* const schema :
       {R"({"type": "object", "properties": {"a": {"type": "integer"}}})",
        R"({"type": "object", "patternProperties": {"^a": {"type": "integer"}}})",
        R"({"type": "object", "patternProperties": {"^[^x]$": {"type": "integer"}}})"}) {
    SCOPED_TRACE(schema);
    const auto grammar = SchemaGrammar(schema);
    EXPECT_TRUE(Obeys(grammar, R"({"a": 1})"));
    EXPECT_TRUE(Obeys(grammar, R"({"xx": "free"})"));
    for (const char* const name : {"a", "\\u0061", "\\u0000", "\\n"}) {
      if (std::string_view(name) == "\\n" && !absl::StrContains(schema, "[^x]")) continue;
      EXPECT_FALSE(Obeys(grammar, fmt::format(R"({{"{}": "x"}})", name))) << name;
    }
  }
  const auto inner = SchemaGrammar(
      R"({"type": "object", "additionalProperties": false,
          "properties": {"const": {"type": "object", "properties": {"a": {"type": "integer"}}}}})");
  EXPECT_TRUE(Obeys(inner, R"({"const": {"a": 1}})"));
  EXPECT_FALSE(Obeys(inner, R"({"const": {"\u0061": "x"}})"));
  // One that the schema names, in the way in which it is written.
  EXPECT_TRUE(Obeys(SchemaGrammar(R"({"type": "object", "properties": {"\u0001": {"type": "integer"}}})"),
                    R"({"\u0001": 1})"));
  // Where all names are known, and where none is, a text may have any character.
  EXPECT_TRUE(Obeys(SchemaGrammar(R"({"type": "string"})"), R"("\u0001\n\"\\")"));
  EXPECT_TRUE(Obeys(SchemaGrammar(R"({"const": "\u0001"})"), R"("\u0001")"));
  const std::string closed =
      R"({"type": "object", "properties": {"a": {"enum": ["\u0001", "b"]}}, "additionalProperties": false})";
  EXPECT_TRUE(Obeys(SchemaGrammar(closed), R"({"a": "\u0001"})"));
  EXPECT_FALSE(Obeys(SchemaGrammar(closed), R"({"\u0061": "b"})"));
  // The compiler would write such a text without the character.
  for (const char* const value : {R"("\u0001")", R"({"\u007f": 1})"}) {
    const auto refused = SchemaGrammar(
        fmt::format(R"({{"type": "object", "properties": {{"a": {{"enum": [{}, "b"]}}}}}})", value));
    EXPECT_THAT(refused.status().message(), HasSubstr("additionalProperties false")) << value;
  }
}

TEST_F(ConstraintTest, AnyObjectIsAnObject) {
  EXPECT_TRUE(Obeys(AnyObjectGrammar(), R"({"a": "\u0001"})"));
  EXPECT_TRUE(Obeys(AnyObjectGrammar(), R"({"a": [1, 2], "b": {"c": null}})"));
  EXPECT_FALSE(Obeys(AnyObjectGrammar(), "[1]"));
}

TEST_F(ConstraintTest, RegularExpressionsAreTakenAsTheyAre) {
  EXPECT_TRUE(Obeys(RegexGrammar("a/b"), "a/b"));
  EXPECT_TRUE(Obeys(RegexGrammar("a\\/b"), "a/b"));
  EXPECT_TRUE(Obeys(RegexGrammar("a\nb"), "a\nb"));
  EXPECT_TRUE(Obeys(RegexGrammar("[0-9]{3}-\\d+|none"), "123-4"));
  EXPECT_TRUE(Obeys(RegexGrammar("[0-9]{3}-\\d+|none"), "none"));
  EXPECT_FALSE(Obeys(RegexGrammar("[0-9]{3}-\\d+|none"), "12-4"));
  EXPECT_TRUE(Obeys(RegexGrammar("\\\\/x"), "\\/x"));
  EXPECT_FALSE(RegexGrammar("").ok());
}

// The syntax of the Rust crate `regex`, with Unicode's classes: another one than that of a schema's patterns.
TEST_F(ConstraintTest, RegularExpressionsHaveTheSyntaxOfRust) {
  const struct {
    const char *regex, *taken, *not_taken;
  } cases[] = {
      {"\\d", "\xD9\xA3", "a"},
      {"\\w", "\xC3\xA4", "-"},
      {"\\s", "\xC2\x85", "a"},
      {".", "\r", "\n"},
      {"(?s).", "\n", ""},
      {"(?i)ab", "aB", "ac"},
      {"(?x) a b # c", "ab", "a b"},
      {"[a-z&&[^b]]", "a", "b"},
      {"[[:digit:]]", "5", ":"},
      {"[^\"]", "a", "\""},
      {"\\pL\\p{Greek}", "a\xCE\xB1", "1a"},
      {"\\x{e4}\\u{41}",
       "\xC3\xA4"
       "A",
       "a"},
      {"(?P<n>a)(?<m>b)", "ab", "a"},
      {"a+?b", "aab", "b"},
      {"^ab$", "ab", "a"},
      {"\\Aab\\z", "ab", "a"},
  };
  for (const auto& one : cases) {
    EXPECT_TRUE(Obeys(RegexGrammar(one.regex), one.taken)) << one.regex;
    EXPECT_FALSE(Obeys(RegexGrammar(one.regex), one.not_taken)) << one.regex;
  }
  for (const char* const refused :
       {"(?=a)a", "(?!a)b", "\\ba", "(a)\\1", "a$b", "\\u12", "\\cA", "[z-a]", "a{,2}"}) {
    const auto grammar = RegexGrammar(refused);
    EXPECT_TRUE(!grammar.ok() || absl::IsInvalidArgument(vocabulary_->Compile(*grammar).status())) << refused;
  }
}

TEST_F(ConstraintTest, ChoicesAreTexts) {
  const std::vector<std::string> choices = {"yes", "no \"never\"", "a|b\n", "\xC3\xA4"};
  for (const std::string& choice : choices) EXPECT_TRUE(Obeys(ChoiceGrammar(choices), choice)) << choice;
  EXPECT_FALSE(Obeys(ChoiceGrammar(choices), "a"));
  EXPECT_FALSE(Obeys(ChoiceGrammar(choices), "yesno"));
  EXPECT_FALSE(ChoiceGrammar({}).ok());
  EXPECT_FALSE(ChoiceGrammar(std::vector<std::string>{""}).ok());
  EXPECT_FALSE(ChoiceGrammar(std::vector<std::string>{"yes", "\xC3"}).ok());
}

TEST_F(ConstraintTest, TagsHaveAStructureAndTheTextAroundThemHasNone) {
  const std::vector<StructuralTag> tags = {
      {.begin = "<fn=add>",
       .json_schema = R"({"type": "object", "properties": {"n": {"type": "integer"}},
                                               "required": ["n"], "additionalProperties": false})",
       .end = "</fn>"},
      {.begin = "<fn=stop>", .json_schema = R"({"type": "null"})", .end = "</fn>"},
      {.begin = "DATA ", .json_schema = R"({"type": "array", "items": {"type": "boolean"}})", .end = ""}};
  const std::vector<std::string> triggers = {"<fn=", "DATA"};
  const auto grammar = StructuralGrammar(tags, triggers);
  for (const char* const good :
       {"", "Words < and <f, DAT and nothing else.", "<fn=add>{\"n\": 3}</fn>", "a <fn=stop>null</fn> b\n",
        "one <fn=add>{\"n\": 3}</fn><fn=stop>null</fn> two DATA [true, false] three <fn=add>{\"n\":-1}</fn>",
        "DATA []", "<<fn=stop>null</fn>", "An unfinished <fn"}) {
    EXPECT_TRUE(Obeys(grammar, good)) << good;
  }
  for (const char* const bad :
       {"<fn=", "<fn=other>{}</fn>", "<fn=add>{\"n\": \"3\"}</fn>", "<fn=add>{\"n\": 3}", "DATA", "DATA {}",
        "DATA [1]", "words <fn=stop>null</fn> <fn=stop>no</fn>", "<fn=stop> then DATA []",
        "DATA then <fn=stop>null</fn>", "<fn=add>{\"n\": 3}</fn> DATA x"}) {
    EXPECT_FALSE(Obeys(grammar, bad)) << bad;
  }
}

TEST_F(ConstraintTest, ATagThatCouldNotBeginIsNamed) {
  const auto refused = [](std::vector<StructuralTag> tags, std::vector<std::string> triggers) {
    const auto grammar = StructuralGrammar(tags, triggers);
    EXPECT_TRUE(absl::IsInvalidArgument(grammar.status()));
    return std::string(grammar.status().message());
  };
  const StructuralTag good = {.begin = "<a>", .json_schema = "{}", .end = "</a>"};
  EXPECT_THAT(refused({}, {"<"}), HasSubstr("tags: there are 0"));
  EXPECT_THAT(refused({good}, {}), HasSubstr("triggers: there are 0"));
  EXPECT_THAT(refused({good}, {"<", ""}), HasSubstr("triggers[1]: empty"));
  EXPECT_THAT(refused({good}, {"<a", "a"}), HasSubstr("triggers[1]: part of triggers[0]"));
  EXPECT_THAT(refused({good}, {"<a", "<a"}), HasSubstr("triggers[0]: part of triggers[1]"));
  EXPECT_THAT(refused({good}, {"<a", "<b"}), HasSubstr("triggers[1]: no tag begins with it"));
  EXPECT_THAT(refused({good, {.begin = "b", .json_schema = "{}", .end = ""}}, {"<a"}),
              HasSubstr("tags[1].begin: begins with none"));
  EXPECT_THAT(refused({{.begin = "<a>", .json_schema = "{", .end = ""}}, {"<"}),
              HasSubstr("tags[0].json_schema: "));
  EXPECT_THAT(refused({{.begin = "<a>", .json_schema = "{}", .end = std::string(300, 'x')}}, {"<"}),
              HasSubstr("tags[0].end: 300 bytes"));
  EXPECT_THAT(refused({{.begin = "<a\xC3", .json_schema = "{}", .end = ""}}, {"<"}),
              HasSubstr("tags[0].begin: not UTF-8"));
}

TEST_F(ConstraintTest, AClientsGrammarIsBounded) {
  EXPECT_TRUE(Obeys(LarkGrammar("start: \"a\" b\nb: \"b\"+"), "abb"));
  EXPECT_FALSE(LarkGrammar(std::string(20 << 10, ' ')).ok());
  EXPECT_FALSE(LarkGrammar("start: %json {\"x-guidance\": {\"lenient\": true}}").ok());
}

}  // namespace
}  // namespace baton::output
