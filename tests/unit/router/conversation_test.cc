#include "router/conversation.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace baton::router {
namespace {

v1::Conversation FromJson(const std::string& json) {
  v1::Conversation conversation;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &conversation);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return conversation;
}

TEST(TemplateVariablesTest, AreThoseOfHuggingFace) {
  const v1::Conversation conversation = FromJson(R"({
    "messages": [
      {"role": "user", "content": "weather?"},
      {"role": "assistant", "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "name": "weather", "arguments_json":
         "{\"city\": \"Oslo\", \"days\": 3, \"by\": [\"a\", null]}"}]},
      {"role": "tool", "content": "rain", "tool_call_id": "c1"}],
    "tools": [{"name": "weather", "description": "tells", "parameters_json": "{\"type\": \"object\"}"}],
    "enable_thinking": false,
    "template_arguments": {"style": "short"}})");
  EXPECT_TRUE(CheckConversation(conversation).ok());
  // As text: the order of keys is part of what the model reads.
  EXPECT_EQ(TemplateVariables(conversation).dump(),
            R"({"style":"short","messages":[{"role":"user","content":"weather?"},)"
            R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"weather","arguments":)"
            R"({"city":"Oslo","days":3,"by":["a",null]}}}]},)"
            R"({"role":"tool","content":"rain","tool_call_id":"c1"}],)"
            R"("tools":[{"type":"function","function":{"name":"weather","description":"tells",)"
            R"("parameters":{"type":"object"}}}],"enable_thinking":false,"add_generation_prompt":true})");
}

TEST(TemplateVariablesTest, WholeNumbersAreIntegers) {
  const auto variables =
      TemplateVariables(FromJson(R"({"template_arguments": {"a": 3, "b": 0.5, "c": 1e300}})"));
  EXPECT_TRUE(variables["a"].is_number_integer());
  EXPECT_TRUE(variables["b"].is_number_float());
  EXPECT_TRUE(variables["c"].is_number_float());
  EXPECT_FALSE(variables.contains("tools"));
  EXPECT_FALSE(variables.contains("enable_thinking"));
}

TEST(CheckConversationTest, NamesTheField) {
  const auto message = [](const std::string& json) {
    return std::string(CheckConversation(FromJson(json)).message());
  };
  EXPECT_EQ(message("{}").find("conversation.messages: empty"), 0u);
  EXPECT_EQ(message(R"({"messages": [{"role": "user"}, {}]})").find("conversation.messages[1].role: empty"),
            0u);
  EXPECT_EQ(message(R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})")
                .find("conversation.messages[0].tool_calls[0].name: empty"),
            0u);
  EXPECT_EQ(
      message(R"({"messages": [{"role": "user"}], "tools": [{}]})").find("conversation.tools[0].name: empty"),
      0u);
  EXPECT_EQ(
      message(R"({"messages": [{"role": "user"}], "tools": [{"name": "t", "parameters_json": "[1]"}]})"),
      "conversation.tools[0].parameters_json: not a JSON object");
  EXPECT_EQ(
      message(
          R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "t", "arguments_json": "{"}]}]})"),
      "conversation.messages[0].tool_calls[0].arguments_json: not a JSON object");
  EXPECT_EQ(message(R"({"messages": [{"role": "user"}], "template_arguments": {"messages": 1}})")
                .find("conversation.template_arguments: \"messages\""),
            0u);
}

}  // namespace
}  // namespace baton::router
