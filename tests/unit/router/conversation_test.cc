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
        {"id": "c1", "name": "weather", "arguments": {"city": "Oslo", "days": 3, "scale": 1.5, "now": true,
                                                       "tags": ["a", null]}}]},
      {"role": "tool", "content": "rain", "tool_call_id": "c1"}],
    "tools": [{"name": "weather", "description": "tells", "parameters": {"type": "object"}}],
    "enable_thinking": false,
    "template_arguments": {"style": "short"}})");
  EXPECT_TRUE(CheckConversation(conversation).ok());
  EXPECT_EQ(TemplateVariables(conversation), nlohmann::json::parse(R"({
    "messages": [
      {"role": "user", "content": "weather?"},
      {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
        {"type": "function", "id": "c1", "function": {"name": "weather", "arguments":
          {"city": "Oslo", "days": 3, "scale": 1.5, "now": true, "tags": ["a", null]}}}]},
      {"role": "tool", "content": "rain", "tool_call_id": "c1"}],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "tells",
                                                 "parameters": {"type": "object"}}}],
    "enable_thinking": false,
    "style": "short",
    "add_generation_prompt": true})"));
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
  EXPECT_EQ(message(R"({"messages": [{"role": "user"}], "template_arguments": {"messages": 1}})")
                .find("conversation.template_arguments: \"messages\""),
            0u);
}

}  // namespace
}  // namespace baton::router
