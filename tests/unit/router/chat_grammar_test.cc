#include "router/api/chat_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "nlohmann/json.hpp"
#include "router/api/answer_format.h"
#include "text/grammar.h"
#include "text/output/call_grammar.h"

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

  // True if the answer may be `text`.
  bool Takes(const std::string& text) {
    const auto grammar = ChatGrammar(model_, request_, GrammarCheck::Effort::kCompile);
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
    const auto grammar = ChatGrammar(model_, request_, GrammarCheck::Effort::kCompile);
    EXPECT_TRUE(absl::IsInvalidArgument(grammar.status())) << grammar.status();
    return std::string(grammar.status().message());
  }
  v1::Tool* tool(int i) { return request_.mutable_conversation()->mutable_tools(i); }
  static std::string Call(const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  }

  // The same with a model that writes `format` with a token for each marker.
  void WriteAs(std::string_view format) {
    std::stringstream read;
    read << std::ifstream(BATON_SOURCE_DIR "/models/baton-tiny/tokenizer.json").rdbuf();
    auto json = nlohmann::json::parse(read.str());
    model_.output.format = output::FindFormat(format);
    for (const std::string_view marker : output::Markers(*model_.output.format)) {
      nlohmann::json token = json["added_tokens"].back();
      token["id"] = token["id"].get<int>() + 1;
      token["content"] = marker;
      json["added_tokens"].push_back(token);
    }
    model_.tokenizer = text::Tokenizer::FromJson(json.dump()).value();
    model_.markers = std::make_shared<output::MarkerTable>(*model_.output.format, *model_.tokenizer);
    model_.grammars = std::make_shared<GrammarCheck>(*model_.tokenizer);
    model_.text_beside_tools = output::TellsCallsFromText(*model_.markers);
    vocabulary_ = text::GrammarVocabulary::Make(*model_.tokenizer).value();
  }

  ServedModel model_ = ServedModel::Load(BATON_SOURCE_DIR "/models/baton-tiny", "").value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_ =
      text::GrammarVocabulary::Make(*model_.tokenizer).value();
  v1::ChatRequest request_;
};

TEST_F(ChatGrammarTest, AFreeAnswerHasNone) {
  EXPECT_TRUE(model_.strict_tools);
  EXPECT_TRUE(model_.text_beside_tools);
  const auto none = ChatGrammar(model_, request_, GrammarCheck::Effort::kCompile);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
}

TEST_F(ChatGrammarTest, RequiredIsCallsThatObey) {
  request_.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  EXPECT_TRUE(ChatGrammar(model_, request_, GrammarCheck::Effort::kCompile)->value().may_think());
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
  EXPECT_FALSE(ChatGrammar(model_, request_, GrammarCheck::Effort::kCompile)->value().may_think());
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

// Its names are its own: they may be those of the grammar around it.
TEST_F(ChatGrammarTest, AClientsGrammarStandsBesideCalls) {
  request_.mutable_constraint()->set_lark(
      "start: group call_0\ngroup: TEXT\nTEXT: /[a-c]/ // a }\ncall_0: \"!\" | \"}\"");
  EXPECT_TRUE(Takes("a!"));
  EXPECT_TRUE(Takes("b}"));
  EXPECT_TRUE(Takes(Call("f", "{}")));
  EXPECT_FALSE(Takes("d!"));
  EXPECT_FALSE(Takes("Words."));
  EXPECT_FALSE(Takes("a!" + Call("f", "{}")));
  request_.mutable_constraint()->set_lark("start: \"a\" } | \"b\"");
  EXPECT_THAT(Refused(), HasSubstr("constraint.lark"));
}

TEST_F(ChatGrammarTest, InChannelsTheAnswerStandsBehindThinking) {
  WriteAs("harmony");
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const std::string final = "<|channel|>final<|message|>";
  const std::string call =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": 1}<|call|>";
  request_.mutable_constraint()->set_regex("[0-9]+");
  request_.mutable_thinking()->set_budget_tokens(9);
  for (const char* const lark : {"", "start: group\ngroup: /[0-9]+/\n"}) {
    if (*lark != 0) request_.mutable_constraint()->set_lark(lark);
    EXPECT_TRUE(CheckConstraint(model_, request_).ok());
    EXPECT_FALSE(ChatGrammar(model_, request_, GrammarCheck::Effort::kCompile)->value().may_think())
        << "the grammar has it";
    EXPECT_TRUE(Takes(final + "12"));
    EXPECT_TRUE(Takes(thought + final + "12"));
    EXPECT_TRUE(Takes(thought + call));
    EXPECT_FALSE(Takes(thought + final + "twelve"));
    request_.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_NONE);
    EXPECT_TRUE(Takes(thought + final + "12"));
    EXPECT_FALSE(Takes(thought + call));
    EXPECT_FALSE(Takes("12"));
    request_.clear_tool_choice();
  }
}

TEST_F(ChatGrammarTest, RawValuesObey) {
  WriteAs("glm");
  tool(0)->set_parameters_json(
      R"({"properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 3}},
                                   "required": ["n"]})");
  tool(0)->set_strict(true);
  EXPECT_TRUE(Takes("Yes.<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"));
  EXPECT_TRUE(
      Takes("<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>"
            "<arg_key>s</arg_key><arg_value>a b</arg_value></tool_call>"));
  EXPECT_FALSE(Takes("<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"));
  EXPECT_FALSE(Takes("<tool_call>f\n</tool_call>"));
  EXPECT_TRUE(Takes("<tool_call>g\n<arg_key>any</arg_key>\n<arg_value>thing</arg_value>\n</tool_call>"));
  tool(0)->set_parameters_json(R"({"properties": {"n": {"type": "integer"}}, "if": {}})");
  EXPECT_THAT(Refused(), AllOf(HasSubstr("conversation.tools[0].parameters_json"), HasSubstr("\"if\"")));
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
