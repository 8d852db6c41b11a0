#include "router/api/conversation.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace baton::router {
namespace {

v1::Conversation FromJson(const std::string& json) {
  v1::Conversation conversation;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &conversation);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return conversation;
}

constexpr int64_t kMany = 1'000'000;

std::string Refusal(const v1::Conversation& conversation, int64_t max_parts = kMany) {
  const auto variables = TemplateVariables(conversation, max_parts);
  EXPECT_EQ(variables.status().code(), absl::StatusCode::kInvalidArgument) << variables.status();
  return std::string(variables.status().message());
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
    "template_arguments": {"style": "short"}})");
  EXPECT_TRUE(CheckConversation(conversation).ok());
  // As text: the order of keys is part of what the model reads.
  EXPECT_EQ(TemplateVariables(conversation, kMany)->dump(),
            R"({"style":"short","messages":[{"role":"user","content":"weather?"},)"
            R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"weather","arguments":)"
            R"({"city":"Oslo","days":3,"by":["a",null]}}}]},)"
            R"({"role":"tool","content":"rain","tool_call_id":"c1","name":"weather"}],)"
            R"("tools":[{"type":"function","function":{"name":"weather","description":"tells",)"
            R"("parameters":{"type":"object"}}}],"add_generation_prompt":true})");
}

TEST(TemplateVariablesTest, ArgumentsAreTheClientsTextWhereTheTemplateTakesText) {
  v1::Conversation conversation = FromJson(
      R"({"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": [{"name": "f"}, {"name": "g"}]}]})");
  conversation.mutable_messages(1)->mutable_tool_calls(0)->set_arguments_json("{\"a\":1,  \"b\": [ ]}");
  const auto variables = TemplateVariables(conversation, kMany, {.text_arguments = true});
  ASSERT_TRUE(variables.ok()) << variables.status();
  const auto& calls = (*variables)["messages"][1]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"], "{\"a\":1,  \"b\": [ ]}") << "byte for byte";
  EXPECT_EQ(calls[1]["function"]["arguments"], "{}");
}

// A model wrote them, or was cut.
TEST(TemplateVariablesTest, ArgumentsThatAreNoObjectAreAText) {
  v1::Conversation conversation =
      FromJson(R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f"}]}]})");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 64; ++i) deep += "[";
  for (const std::string& arguments :
       {std::string("{\"a\": "), std::string("[1]"), std::string("{\"a\": 1, \"a\": 1}"), deep}) {
    conversation.mutable_messages(0)->mutable_tool_calls(0)->set_arguments_json(arguments);
    const auto given = [&](const output::CallStyle& calls, bool raw) {
      const auto variables = TemplateVariables(conversation, kMany, calls, raw);
      EXPECT_TRUE(variables.ok()) << variables.status();
      return variables.ok() ? (*variables)["messages"][0]["tool_calls"][0]["function"]["arguments"].dump()
                            : "";
    };
    const std::string text = nlohmann::json(arguments).dump();
    EXPECT_EQ(given({}, true), text);
    EXPECT_EQ(given({}, false), "{\"arguments\":" + text + "}");
    EXPECT_EQ(given({.text_arguments = true}, false), text);
  }
  // They are counted all the same.
  conversation.mutable_messages(0)->mutable_tool_calls(0)->set_arguments_json("[1, 2, 3, 4, 5]");
  EXPECT_EQ(Refusal(conversation, 5).find("conversation: more than 5 messages"), 0u);
}

TEST(TemplateVariablesTest, ContentIsNoneWhereTheTemplateAsksForThat) {
  const v1::Conversation conversation = FromJson(R"({"messages": [
      {"role": "assistant", "tool_calls": [{"id": "c1", "name": "f"}]},
      {"role": "tool", "content": "a", "tool_call_id": "c1"}, {"role": "tool", "content": "b", "tool_call_id": "c2"},
      {"role": "assistant", "content": "both", "tool_calls": [{"id": "c1", "name": "g"}]},
      {"role": "tool", "content": "c", "tool_call_id": "c1"}, {"role": "assistant"}]})");
  const auto messages = (*TemplateVariables(conversation, kMany, {.none_content = true}))["messages"];
  EXPECT_TRUE(messages[0]["content"].is_null());
  EXPECT_EQ(messages[1]["name"], "f");
  EXPECT_FALSE(messages[2].contains("name")) << "it answers no call";
  EXPECT_EQ(messages[3]["content"], "both");
  EXPECT_EQ(messages[4]["name"], "g") << "the latest call of that id";
  EXPECT_EQ(messages[5]["content"], "");
  EXPECT_EQ((*TemplateVariables(conversation, kMany))["messages"][0]["content"], "");
}

TEST(TemplateVariablesTest, WholeNumbersAreIntegers) {
  const auto variables =
      *TemplateVariables(FromJson(R"({"template_arguments": {"a": 3, "b": 0.5, "c": 1e300}})"), kMany);
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
  EXPECT_EQ(message(R"({"messages": [{"role": "wizard"}]})"),
            "conversation.messages[0].role: \"wizard\" is none; use \"system\", \"developer\", \"user\", "
            "\"assistant\", \"tool\"");
  EXPECT_EQ(message(R"({"messages": [{"role": "user", "parts": [{"text": ""}, {"reusable": true}]}]})"),
            "conversation.messages[0].parts[1].content: missing; set text");
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

// A conversation with one tool, of these parameters.
v1::Conversation WithTool(const std::string& parameters) {
  v1::Conversation conversation = FromJson(R"({"messages": [{"role": "user"}], "tools": [{"name": "t"}]})");
  conversation.mutable_tools(0)->set_parameters_json(parameters);
  return conversation;
}

// {"key0": 0, "key1": 1, ...}
std::string ManyKeys(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) text += fmt::format("{}\"key{}\":{}", i == 0 ? "" : ",", i, i);
  return text + "}";
}

TEST(TemplateVariablesTest, JsonIsReadStrictly) {
  const std::string field = "conversation.tools[0].parameters_json: ";
  EXPECT_EQ(Refusal(WithTool("[1]")), field + "not a JSON object");
  EXPECT_EQ(Refusal(WithTool("{")).find(field + "not valid JSON at byte "), 0u);
  EXPECT_EQ(Refusal(WithTool(R"({"a": 1, "b": {"k": 1, "k": 2}})")),
            field + "key \"k\" stands twice in one object");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 64; ++i) deep += "[";
  EXPECT_EQ(Refusal(WithTool(deep)), field + "nested more than 64 deep");
}

TEST(TemplateVariablesTest, PartsAreCountedTogether) {
  // A message, a tool, an object with a list of two.
  const v1::Conversation tool = WithTool(R"({"a": [1, 2]})");
  EXPECT_TRUE(TemplateVariables(tool, 6).ok());
  EXPECT_EQ(
      Refusal(tool, 5).find("conversation: more than 5 messages, tools, calls and JSON values together"), 0u);
  const v1::Conversation arguments =
      FromJson(R"({"messages": [{"role": "user"}], "template_arguments": {"a": {"b": [1, 2]}, "c": 1}})");
  EXPECT_TRUE(TemplateVariables(arguments, 6).ok());
  EXPECT_EQ(Refusal(arguments, 5).find("conversation: more than 5 "), 0u);
  v1::Conversation messages;
  for (int i = 0; i < 10; ++i) messages.add_messages()->set_role("user");
  EXPECT_TRUE(TemplateVariables(messages, 10).ok());
  EXPECT_EQ(Refusal(messages, 9).find("conversation: more than 9 "), 0u);
  EXPECT_EQ(Refusal(WithTool(ManyKeys(100'000)), 2304).find("conversation: more than 2304 "), 0u);
}

// Where a context has room for them they are read, in linear time: the library's own parser, and its
// operators on objects, would compare 20 billion keys here.
TEST(TemplateVariablesTest, ManyKeysTakeLinearTime) {
  constexpr int kKeys = 200'000;
  const auto variables = TemplateVariables(WithTool(ManyKeys(kKeys)), kMany);
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_EQ((*variables)["tools"][0]["function"]["parameters"].size(), size_t{kKeys});
  v1::Conversation conversation = FromJson(R"({"messages": [{"role": "user"}]})");
  auto& fields = *conversation.mutable_template_arguments()->mutable_fields();
  for (int i = 0; i < kKeys; ++i) fields[fmt::format("key{}", i)].set_number_value(i);
  const auto more = TemplateVariables(conversation, kMany);
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_GT(more->size(), size_t{kKeys});
}

}  // namespace
}  // namespace baton::router
