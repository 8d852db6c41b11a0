#include "router/api/chat_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/text/grammar.h"

namespace baton::router {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The shipped model writes calls as hermes does.
class ChatGrammarTest : public testing::Test {
 protected:
  ChatGrammarTest() {
    for (const char* const name : {"f", "g"}) {
      v1::Tool* const tool = request_.mutable_conversation()->add_tools();
      tool->set_name(name);
      tool->set_parameters_json(
          R"({"properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})");
    }
  }

  // Whether the answer may be `text`.
  bool Takes(const std::string& text) {
    const auto grammar = ChatGrammar(model_, request_);
    EXPECT_TRUE(grammar.ok() && grammar->has_value()) << grammar.status();
    if (!grammar.ok() || !grammar->has_value()) return false;
    auto matcher = vocabulary_->Compile((*grammar)->lark());
    EXPECT_TRUE(matcher.ok()) << matcher.status();
    const auto tokens = model_.tokenizer->Encode(text, false);
    for (const TokenId token : *tokens) {
      if (!matcher->Push(token).ok()) return false;
    }
    text::TokenMask mask(vocabulary_->mask_words());
    return matcher->Mask(mask).value();
  }
  std::string Refused() {
    const auto grammar = ChatGrammar(model_, request_);
    EXPECT_TRUE(absl::IsInvalidArgument(grammar.status())) << grammar.status();
    return std::string(grammar.status().message());
  }
  v1::Tool* tool(int i) { return request_.mutable_conversation()->mutable_tools(i); }
  static std::string Call(const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  }

  const ServedModel model_ = ServedModel::Load(BATON_SOURCE_DIR "/models/baton-tiny", "").value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_ =
      text::GrammarVocabulary::Make(*model_.tokenizer).value();
  v1::ChatRequest request_;
};

TEST_F(ChatGrammarTest, AFreeAnswerHasNone) {
  EXPECT_TRUE(model_.strict_tools);
  EXPECT_TRUE(model_.text_beside_tools);
  const auto none = ChatGrammar(model_, request_);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
}

TEST_F(ChatGrammarTest, RequiredIsCallsThatObey) {
  request_.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  EXPECT_TRUE(ChatGrammar(model_, request_)->value().may_think());
  EXPECT_TRUE(Takes(Call("f", "{\"n\": 1}")));
  EXPECT_TRUE(Takes(Call("f", "{\"n\": 1}") + "\n" + Call("g", "{\"n\": 2}")));
  EXPECT_FALSE(Takes(Call("f", "{\"n\": \"1\"}")));
  EXPECT_FALSE(Takes(Call("h", "{\"n\": 1}")));
  EXPECT_FALSE(Takes("No."));
  request_.mutable_tool_choice()->set_parallel(false);
  EXPECT_TRUE(Takes(Call("f", "{\"n\": 1}")));
  EXPECT_FALSE(Takes(Call("f", "{\"n\": 1}") + "\n" + Call("g", "{\"n\": 2}")));
  request_.mutable_tool_choice()->add_names("g");
  EXPECT_FALSE(Takes(Call("f", "{\"n\": 1}")));
  EXPECT_TRUE(Takes(Call("g", "{\"n\": 1}")));
  request_.mutable_thinking()->set_enabled(false);
  EXPECT_FALSE(ChatGrammar(model_, request_)->value().may_think());
}

TEST_F(ChatGrammarTest, StrictHoldsForTheToolsThatAskForIt) {
  tool(1)->set_strict(true);
  EXPECT_TRUE(Takes("No."));
  EXPECT_TRUE(Takes(""));
  EXPECT_TRUE(Takes("I look.\n" + Call("g", "{\"n\": 1}") + "\nDone."));
  EXPECT_FALSE(Takes("I look.\n" + Call("g", "{}")));
  EXPECT_TRUE(Takes("I look.\n" + Call("f", "{}")));
}

TEST_F(ChatGrammarTest, BesideAConstraintAnAnswerIsOneOrTheOther) {
  request_.mutable_constraint()->set_regex("[0-9]+");
  EXPECT_TRUE(Takes("12"));
  EXPECT_TRUE(Takes(Call("f", "{}"))) << "not strict";
  EXPECT_FALSE(Takes("twelve"));
  EXPECT_FALSE(Takes("12" + Call("f", "{}")));
  request_.mutable_constraint()->set_json_schema(R"({"type": "integer"})");
  EXPECT_TRUE(Takes("12"));
  EXPECT_TRUE(Takes(Call("f", "{}")));
  request_.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_NONE);
  EXPECT_TRUE(Takes("12"));
  EXPECT_FALSE(Takes(Call("f", "{}")));
  request_.mutable_constraint()->set_regex("(");
  EXPECT_THAT(Refused(), HasSubstr("constraint.regex"));
}

TEST_F(ChatGrammarTest, RefusalsNameTheToolAndTheKeyword) {
  tool(1)->set_strict(true);
  tool(1)->set_parameters_json(R"({"type": "object", "dependentSchemas": {}})");
  EXPECT_THAT(Refused(), AllOf(HasSubstr("conversation.tools[1].parameters_json"), HasSubstr("\"g\""),
                               testing::EndsWith("Unimplemented keys: [\"dependentSchemas\"]")));
  tool(1)->set_parameters_json(R"({"type": "string"})");
  EXPECT_THAT(Refused(), AllOf(HasSubstr("conversation.tools[1].parameters_json"), HasSubstr("\"string\"")));
  tool(1)->set_strict(false);
  tool(0)->set_strict(true);
  EXPECT_TRUE(Takes("No.")) << "what is not enforced need not compile";
  tool(0)->set_name("a tool");
  EXPECT_THAT(Refused(), AllOf(HasSubstr("conversation.tools[0].name"), HasSubstr("a tool")));
}

}  // namespace
}  // namespace baton::router
