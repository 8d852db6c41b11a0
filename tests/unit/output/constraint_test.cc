#include "common/output/constraint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_F(ConstraintTest, AClientsGrammarIsBounded) {
  EXPECT_TRUE(Obeys(LarkGrammar("start: \"a\" b\nb: \"b\"+"), "abb"));
  EXPECT_FALSE(LarkGrammar(std::string(20 << 10, ' ')).ok());
  EXPECT_FALSE(LarkGrammar("start: %json {\"x-guidance\": {\"lenient\": true}}").ok());
}

}  // namespace
}  // namespace baton::output
