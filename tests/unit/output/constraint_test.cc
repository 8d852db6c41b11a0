#include "common/output/constraint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/output/structural_tags.h"
#include "common/text/grammar.h"
#include "common/text/tokenizer.h"

namespace baton::output {
namespace {

using testing::HasSubstr;

class ConstraintTest : public testing::Test {
 protected:
  // Whether the whole of `text` obeys the grammar.
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

TEST_F(ConstraintTest, AnyObjectIsAnObject) {
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
