#include "router/api/answer_format.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace baton::router {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ChatRequest ChatWith(const std::string& fields) {
  v1::ChatRequest request;
  const std::string json = R"({"conversation": {"messages": [{"role": "user", "content": "hi"}],
    "tools": [{"name": "f", "parameters_json": "{\"properties\": {\"a\": {\"type\": \"string\"},
      \"b\": {\"type\": [\"integer\", \"null\"]}, \"c\": {\"anyOf\": []}, \"d\": 1}}"}, {"name": "g"}]})" +
                           (fields.empty() ? "" : ", " + fields) + "}";
  const auto status = google::protobuf::util::JsonStringToMessage(json, &request);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return request;
}

ServedModel Model(const std::string& format) {
  ServedModel model;
  model.name = "m";
  model.output = {
      .format = output::FindFormat(format), .tools = format != "none", .thinking = format != "none"};
  model.strict_tools = format != "none" && format != "kimi_k2";
  model.text_beside_tools = format == "hermes" || format == "harmony";
  return model;
}

absl::Status Check(const ServedModel& model, const std::string& fields) {
  const v1::ChatRequest request = ChatWith(fields);
  const absl::Status choice = CheckToolChoice(model, request);
  return choice.ok() ? CheckThinking(model, request) : choice;
}

TEST(AnswerFormatTest, AConstraintGoesWhereItCanBeEnforced) {
  const auto check = [](const std::string& format, const std::string& fields) {
    return CheckConstraint(Model(format), ChatWith(R"("constraint": {"regex": "a"})" + fields));
  };
  const std::string no_calls = R"(, "tool_choice": {"mode": "MODE_NONE"})";
  EXPECT_TRUE(check("hermes", no_calls).ok());
  EXPECT_TRUE(check("none", "").ok());
  EXPECT_TRUE(check("hermes", "").ok()) << "an answer is calls, or the text";
  EXPECT_TRUE(absl::IsUnimplemented(check("llama3_json", ""))) << "a text could be a call";
  EXPECT_THAT(check("qwen3_coder", "").message(), HasSubstr("format qwen3_coder"));
  EXPECT_TRUE(CheckConstraint(Model("hermes"), ChatWith(R"("constraint": {"lark": "start: \"a\""})")).ok());
  EXPECT_TRUE(check("harmony", "").ok());
  EXPECT_TRUE(check("harmony", no_calls).ok());
  ServedModel spelled = Model("harmony");
  spelled.text_beside_tools = false;
  EXPECT_THAT(CheckConstraint(spelled, ChatWith(R"("constraint": {"regex": "a"})")).message(),
              HasSubstr("constraint: the channels"));
  EXPECT_TRUE(absl::IsInvalidArgument(check("hermes", no_calls + R"(, "output": {"raw_text": true})")));

  EXPECT_TRUE(MayThink(Model("hermes"), ChatWith("")));
  EXPECT_FALSE(MayThink(Model("none"), ChatWith("")));
  EXPECT_FALSE(MayThink(Model("harmony"), ChatWith(""))) << "the grammar has its channels";
  EXPECT_FALSE(MayThink(Model("hermes"), ChatWith(R"("thinking": {"enabled": false})")));
}

TEST(AnswerFormatTest, CallsAreConstrainedWhereTheFormatCanBe) {
  const std::string required = R"("tool_choice": {"mode": "MODE_REQUIRED"})";
  EXPECT_TRUE(Check(Model("hermes"), required).ok());
  EXPECT_TRUE(Check(Model("glm"), required).ok());
  EXPECT_THAT(Check(Model("kimi_k2"), required).message(),
              AllOf(HasSubstr("tool_choice.mode"), HasSubstr("format kimi_k2")));
  EXPECT_TRUE(absl::IsUnimplemented(Check(Model("kimi_k2"), required))) << "its sections are spelled";
  EXPECT_THAT(Check(Model("none"), required).message(), HasSubstr("tool_choice.mode: how model"));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Check(Model("hermes"), required + R"(, "output": {"raw_text": true})")));
  v1::ChatRequest toolless = ChatWith(required);
  toolless.mutable_conversation()->clear_tools();
  EXPECT_THAT(CheckToolChoice(Model("hermes"), toolless).message(), HasSubstr("conversation.tools"));

  EXPECT_FALSE(CallsConstrained(Model("hermes"), ChatWith("")));
  EXPECT_TRUE(CallsConstrained(Model("hermes"), ChatWith(required)));
  EXPECT_TRUE(CallsConstrained(Model("hermes"), ChatWith(R"("constraint": {"regex": "a"})")));
  v1::ChatRequest strict = ChatWith("");
  strict.mutable_conversation()->mutable_tools(1)->set_strict(true);
  EXPECT_TRUE(CallsConstrained(Model("hermes"), strict));
  EXPECT_TRUE(CheckConstraint(Model("hermes"), strict).ok());
  EXPECT_TRUE(CheckConstraint(Model("qwen3_coder"), strict).ok());
  EXPECT_THAT(CheckConstraint(Model("kimi_k2"), strict).message(),
              AllOf(HasSubstr("tools[1].strict"), HasSubstr("kimi_k2")));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckConstraint(Model("none"), strict)));
  EXPECT_TRUE(CheckConstraint(Model("harmony"), strict).ok());
  strict.mutable_thinking()->set_budget_tokens(5);
  EXPECT_TRUE(CheckConstraint(Model("hermes"), strict).ok());
  EXPECT_TRUE(CheckConstraint(Model("harmony"), strict).ok());
  strict.mutable_thinking()->Clear();
  strict.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_NONE);
  EXPECT_FALSE(CallsConstrained(Model("hermes"), strict));
  EXPECT_TRUE(CheckConstraint(Model("glm"), strict).ok());
}

TEST(AnswerFormatTest, WhatCannotBeObeyedIsRefusedByName) {
  const auto message = [](const std::string& format, const std::string& fields) {
    return std::string(Check(Model(format), fields).message());
  };
  EXPECT_THAT(message("hermes", R"("tool_choice": {"mode": 9})"), HasSubstr("tool_choice.mode: 9"));
  EXPECT_THAT(message("hermes", R"("tool_choice": {"names": ["f", "h"]})"),
              AllOf(HasSubstr("tool_choice.names[1]"), HasSubstr("\"h\"")));
  EXPECT_THAT(message("hermes", R"("tool_choice": {"mode": "MODE_NONE", "names": ["f"]})"),
              HasSubstr("tool_choice.names: MODE_NONE"));
  EXPECT_THAT(message("none", R"("tool_choice": {"names": ["f"]})"),
              HasSubstr("tool_choice.names: how model \"m\""));
  EXPECT_THAT(message("none", R"("tool_choice": {"parallel": false})"), HasSubstr("tool_choice.parallel"));
  EXPECT_THAT(message("hermes", R"("tool_choice": {"parallel": false}, "output": {"raw_text": true})"),
              HasSubstr("raw_text"));
  EXPECT_THAT(message("hermes", R"("thinking": {"budget_tokens": 0})"),
              HasSubstr("thinking.budget_tokens: 0"));
  EXPECT_THAT(message("none", R"("thinking": {"budget_tokens": 5})"),
              HasSubstr("thinking.budget_tokens: how"));
  EXPECT_THAT(message("none", R"("thinking": {"show": "SHOW_NONE"})"), HasSubstr("thinking.show: how"));
  EXPECT_THAT(message("hermes", R"("thinking": {"show": 7})"), HasSubstr("thinking.show: 7"));
  EXPECT_THAT(message("hermes", R"("thinking": {"effort": ")" + std::string(65, 'x') + "\"}"),
              HasSubstr("thinking.effort: 65 bytes"));
}

TEST(AnswerFormatTest, WhatAModelWithoutAFormatCanDoIsTaken) {
  for (const std::string fields :
       {"", R"("tool_choice": {"mode": "MODE_AUTO", "parallel": true})",
        R"("tool_choice": {"mode": "MODE_NONE", "parallel": false})",
        R"("thinking": {"enabled": true, "effort": "low", "show": "SHOW_TEXT"})"}) {
    EXPECT_TRUE(Check(Model("none"), fields).ok()) << fields << Check(Model("none"), fields);
  }
}

TEST(AnswerFormatTest, TellsTheWorkerWhatTheRequestSays) {
  const ServedModel hermes = Model("hermes");
  const auto plain = AnswerFormatOf(hermes, ChatWith(""), "user\nhi\nassistant\n");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->name(), "hermes");
  EXPECT_THAT(plain->tools(), ElementsAre("f", "g"));
  EXPECT_TRUE(plain->parameters().empty()) << "only formats with raw values need them";
  EXPECT_FALSE(plain->thinking_begun());
  EXPECT_FALSE(plain->has_thinking_budget());

  const auto chosen = AnswerFormatOf(hermes, ChatWith(R"("tool_choice": {"names": ["g"], "parallel": false},
                          "thinking": {"budget_tokens": 9, "show": "SHOW_NONE"})"),
                                     "assistant\n<think>\n");
  EXPECT_THAT(chosen->tools(), ElementsAre("g"));
  EXPECT_TRUE(chosen->one_call());
  EXPECT_TRUE(chosen->thinking_begun());
  EXPECT_TRUE(chosen->hide_thinking());
  EXPECT_EQ(chosen->thinking_budget(), 9u);
  EXPECT_THAT(AnswerFormatOf(hermes, ChatWith(R"("tool_choice": {"mode": "MODE_NONE"})"), "")->tools(),
              ElementsAre());
  EXPECT_FALSE(AnswerFormatOf(hermes, ChatWith(R"("output": {"raw_text": true})"), "").has_value());
  EXPECT_FALSE(AnswerFormatOf(Model("none"), ChatWith(""), "").has_value());
}

TEST(AnswerFormatTest, TypesOfParametersComeFromTheSchema) {
  const auto coder = AnswerFormatOf(Model("qwen3_coder"), ChatWith(""), "");
  ASSERT_EQ(coder->parameters().size(), 1u);
  const auto& types = coder->parameters().at("f").types();
  EXPECT_EQ(types.size(), 2u);
  EXPECT_EQ(types.at("a"), "string");
  EXPECT_EQ(types.at("b"), "integer");
}

// Values that the grammar writes as JSON are read as JSON, and those that it writes as text as text.
TEST(AnswerFormatTest, TypesOfEnforcedParametersSayHowTheyAreWritten) {
  v1::ChatRequest request = ChatWith("");
  request.mutable_conversation()->mutable_tools(0)->set_strict(true);
  request.mutable_conversation()->mutable_tools(0)->set_parameters_json(R"({"properties": {
      "a": {"type": "string", "maxLength": 9}, "b": {"type": "string", "pattern": "^x"}, "c": {"enum": ["1", "2"]},
      "d": {"anyOf": [{"$ref": "#/$defs/name"}, {"type": "null"}]}, "e": {"type": ["integer", "null"]}, "f": {}},
      "$defs": {"name": {"type": "string"}}})");
  const auto format = AnswerFormatOf(Model("glm"), request, "");
  const auto& types = format->parameters().at("f").types();
  EXPECT_EQ(types.at("a"), "string");
  EXPECT_EQ(types.at("b"), "any");
  EXPECT_EQ(types.at("c"), "string");
  EXPECT_EQ(types.at("d"), "string");
  EXPECT_EQ(types.at("e"), "integer");
  EXPECT_EQ(types.at("f"), "any");
}

}  // namespace
}  // namespace baton::router
