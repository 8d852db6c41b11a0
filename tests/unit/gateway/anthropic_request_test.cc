#include "gateway/mapping/anthropic_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/mapping/signature.h"
#include "tests/unit/gateway/shown.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

AnthropicMessages ReadMessages(const std::string& body) {
  auto read = ReadAnthropicMessages(Json::parse(body));
  EXPECT_TRUE(read.ok()) << read.status() << "\n" << body;
  return read.ok() ? *read : AnthropicMessages{};
}

std::string AnthropicWith(const std::string& more) {
  return R"({"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}])" +
         (more.empty() ? "" : ", " + more) + "}";
}

TEST(AnthropicRequestTest, AConversationWithResultsOfTools) {
  const AnthropicMessages read = ReadMessages(R"({"model": "m", "max_tokens": 5, "system": "S", "messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
          {"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "42"}]},
          {"type": "text", "text": "Well?"}]}]})");
  EXPECT_EQ(
      Shown(read.request.conversation()),
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"hi"},)"
      R"({"role":"assistant","content":"Let me see.","reasoning_content":"hm","tool_calls":[{"id":"t1","name":"f","arguments_json":"{\"b\":1,\"a\":2}"}]},)"
      R"({"role":"tool","content":"42","tool_call_id":"t1"},{"role":"user","content":"Well?"}]})");
}

TEST(AnthropicRequestTest, MarksStandWhereTheClientPutThem) {
  const AnthropicMessages read = ReadMessages(R"({"max_tokens": 5, "cache_control": {"type": "ephemeral"},
      "system": [{"type": "text", "text": "A"}, {"type": "text", "text": "B", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                 {"type": "text", "text": "C"}],
      "tools": [{"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral"}}],
      "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "5m"}}]}]})");
  EXPECT_EQ(
      Shown(read.request.conversation()),
      R"({"messages":[{"role":"system","parts":[{"text":"A"},{"text":"B","cache":{"ttl":"CACHE_TTL_1H"}},{"text":"C"}]},)"
      R"({"role":"user","parts":[{"text":"hi","cache":{"ttl":"CACHE_TTL_5M"}}]}],)"
      R"("tools":[{"name":"f","parameters_json":"{}"}],"tools_cache":{"ttl":"CACHE_TTL_5M"}})");
  EXPECT_TRUE(read.request.options().has_cache());
}

TEST(AnthropicRequestTest, ALineThatDiffersWithEveryRequestIsLeftOut) {
  const AnthropicMessages read = ReadMessages(R"({"max_tokens": 5, "messages": [], "system": [
      {"type": "text", "text": "x-anthropic-billing-header: cch=123;"}, {"type": "text", "text": "S"}]})");
  EXPECT_EQ(Shown(read.request.conversation()), R"({"messages":[{"role":"system","content":"S"}]})");
  const std::string line = "x-anthropic-billing-header: cch=123;";
  const std::pair<Json, const char*> systems[] = {
      {line + "\nYou help.", "You help."},
      {Json::array({Json{{"type", "text"}, {"text", line + "\nYou help."}}}), "You help."},
      {"You help.\n" + line, "You help.\nx-anthropic-billing-header: cch=123;"},
      {line, ""}};
  for (const auto& [system, left] : systems) {
    const Json body = {{"max_tokens", 5}, {"messages", Json::array()}, {"system", system}};
    const AnthropicMessages cut = ReadMessages(body.dump());
    const auto& messages = cut.request.conversation().messages();
    ASSERT_EQ(messages.size(), *left == '\0' ? 0 : 1) << system;
    EXPECT_EQ(messages.empty() ? "" : messages[0].content(), left) << system;
    const auto kept = ReadAnthropicMessages(body, {.drop_billing_header = false});
    EXPECT_THAT(kept->request.conversation().messages(0).content(), testing::HasSubstr(line)) << system;
  }
  // It is a line of the system prompt, and of nothing else.
  EXPECT_THAT(Shown(ReadMessages(R"({"max_tokens": 5, "messages": [{"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x-anthropic-billing-header: 1"}]}]}]})")
                        .request),
              testing::HasSubstr("x-anthropic-billing-header: 1"));
}

TEST(AnthropicRequestTest, WhatTheAnswerMustLookLike) {
  const std::string schema = R"({"type": "object", "b": 1, "a": 2})";
  const std::string format = R"({"type": "json_schema", "schema": )" + schema + "}";
  const std::string made = R"({"json_schema":"{\"type\":\"object\",\"b\":1,\"a\":2}"})";
  const AnthropicMessages read = ReadMessages(
      AnthropicWith(R"("output_config": {"effort": "low", "task_budget": {}, "format": )" + format + "}"));
  EXPECT_EQ(Shown(read.request.constraint()), made);
  EXPECT_EQ(Shown(read.request.thinking()), R"({"effort":"low"})");
  EXPECT_THAT(read.ignored, ElementsAre("output_config.task_budget"));
  EXPECT_EQ(Shown(ReadMessages(AnthropicWith(R"("output_format": )" + format)).request.constraint()), made);
  EXPECT_FALSE(ReadMessages(AnthropicWith(R"("output_config": {"effort": "high"}, "output_format": null)"))
                   .request.has_constraint());
  const std::pair<std::string, const char*> wrong[] = {
      {R"("output_config": 3)", "output_config: "},
      {R"("output_config": {"format": {"type": "regex"}})", "output_config.format.type: "},
      {R"("output_config": {"format": {"type": "json_schema"}})", "output_config.format.schema: "},
      {R"("output_format": {"type": "json_object"})", "output_format.type: "},
      {R"("output_format": )" + format + R"(, "output_config": {"format": )" + format + "}",
       "output_format: "}};
  for (const auto& [more, field] : wrong) {
    const auto refused = ReadAnthropicMessages(Json::parse(AnthropicWith(more)));
    ASSERT_TRUE(absl::IsInvalidArgument(refused.status())) << more;
    EXPECT_THAT(std::string(refused.status().message()), StartsWith(field)) << more;
  }
}

TEST(AnthropicRequestTest, UnknownMembersOfNestedObjectsAreNamed) {
  const AnthropicMessages read =
      ReadMessages(R"({"max_tokens": 5, "thinking": {"type": "adaptive", "display": "omitted", "x": 1},
      "system": [{"type": "text", "text": "S", "y": 1}],
      "tools": [{"name": "f", "input_schema": {"any": 1}, "defer_loading": true}],
      "tool_choice": {"type": "auto", "z": 1},
      "messages": [{"role": "user", "id": 1, "content": [{"type": "text", "text": "hi", "citations": [1],
                   "cache_control": {"type": "ephemeral", "scope": "g"}}]},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
              {"type": "redacted_thinking", "data": "d"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"q": 1}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1", "is_error": true}]}]})");
  EXPECT_THAT(read.ignored,
              ElementsAre("system[].y", "messages[].content[].cache_control.scope",
                          "messages[].content[].citations", "messages[].id", "tool_choice.z", "thinking.x"));
  EXPECT_TRUE(read.request.thinking().enabled());
  // The signature carries the text that is not shown.
  EXPECT_TRUE(read.answer.hide_thinking);
  EXPECT_EQ(read.request.thinking().show(), v1::Thinking::SHOW_UNSPECIFIED);
  EXPECT_TRUE(read.request.conversation().tools(0).deferred());
  EXPECT_EQ(read.request.conversation().messages(3).content(), "Error: 1");
}

TEST(AnthropicRequestTest, AToolThatIsLoadedLateIsDescribedWhereItIsReferredTo) {
  const AnthropicMessages read = ReadMessages(R"({"max_tokens": 5,
      "tools": [{"name": "g", "description": "G.", "input_schema": {"type": "object", "b": 1}, "defer_loading": true},
                {"name": "f", "input_schema": {"type": "object"}}],
      "messages": [{"role": "user", "content": "hi"},
          {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content":
              [{"type": "tool_reference", "tool_name": "g"}, {"type": "tool_reference", "tool_name": "h"}, {"type": "tool_reference", "tool_name": "g"}]}]}]})");
  const v1::Conversation& conversation = read.request.conversation();
  EXPECT_TRUE(conversation.tools(0).deferred());
  EXPECT_FALSE(conversation.tools(1).deferred());
  EXPECT_EQ(
      conversation.messages(2).content(),
      R"({"type":"function","function":{"name":"g","description":"G.","parameters":{"type":"object","b":1}}})"
      "[tool_reference: left out, this model reads text alone][g: described above]");
}

TEST(AnthropicRequestTest, ToolsThatTheClientRunsHaveTheirSchema) {
  const auto tool = [](const std::string& type) {
    return ReadMessages(
        AnthropicWith(R"("tools": [{"name": "n", "type": ")" + type + R"(", "max_characters": 7}])"));
  };
  for (const char* const type : {"bash_20250124", "text_editor_20250728", "memory_20250818"}) {
    const AnthropicMessages read = tool(type);
    const v1::Tool& made = read.request.conversation().tools(0);
    EXPECT_EQ(made.name(), "n");
    EXPECT_NE(made.description(), "");
    const Json schema = Json::parse(made.parameters_json());
    EXPECT_TRUE(schema["properties"].contains("command")) << type;
    for (const Json& required : schema.value("required", Json::array())) {
      EXPECT_TRUE(schema["properties"].contains(required.get<std::string>())) << type;
    }
    EXPECT_THAT(read.ignored, testing::IsEmpty());
  }
  for (const char* const type :
       {"web_search_20250305", "computer_20250124", "bash_", "bash_x", "code_execution_20250522"}) {
    const auto refused = ReadAnthropicMessages(
        Json::parse(AnthropicWith(R"("tools": [{"name": "n", "type": ")" + std::string(type) + "\"}]")));
    EXPECT_THAT(std::string(refused.status().message()), StartsWith("tools[0].type: ")) << type;
  }
}

TEST(AnthropicRequestTest, ThinkingComesBackInItsSignature) {
  const auto thinking = [](const std::string& signature, const std::string& shown = "") {
    return ReadMessages(
               R"({"max_tokens": 5, "messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": ")" +
               shown + R"(", "signature": ")" + signature +
               R"("}, {"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]})")
        .request.conversation()
        .messages(0)
        .reasoning_content();
  };
  EXPECT_EQ(thinking(SignatureOf("h\xc3\xa9, \xf0\x9f\x98\x80")), "h\xc3\xa9, \xf0\x9f\x98\x80");
  EXPECT_EQ(thinking(SignatureOf("hidden"), "shown"), "shown");
  for (const std::string& signature : {SignatureOf(""), std::string("EqQBCgIYAhIM"), std::string("baton.***"),
                                       SignatureOf("\xff\xfe"), std::string("")}) {
    EXPECT_EQ(thinking(signature), "") << signature;
  }
}

TEST(AnthropicRequestTest, MessagesAreBounded) {
  Json body = {{"max_tokens", 5}, {"messages", Json::array()}};
  for (size_t i = 0; i <= kMaxMessages; ++i) body["messages"].push_back({{"role", "user"}, {"content", "x"}});
  EXPECT_THAT(std::string(ReadAnthropicMessages(body).status().message()),
              StartsWith("messages: 20001 of them"));
}

TEST(AnthropicRequestTest, SamplingToolsAndThinking) {
  const AnthropicMessages read = ReadMessages(AnthropicWith(
      R"("temperature": 0.5, "top_p": 0.75, "top_k": 3, "stop_sequences": ["x"], "stream": true,
         "metadata": {"user_id": "u"}, "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
         "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
         "thinking": {"type": "enabled", "budget_tokens": 7}, "beam_width": 2)"));
  EXPECT_EQ(Shown(read.request.sampling()), R"({"temperature":0.5,"top_k":3,"top_p":0.75})");
  EXPECT_EQ(Shown(read.request.stop()), R"({"max_tokens":5,"stop":["x"]})");
  EXPECT_EQ(Shown(read.request.tool_choice()), R"({"mode":"MODE_REQUIRED","names":["f"],"parallel":false})");
  EXPECT_EQ(Shown(read.request.thinking()), R"({"enabled":true,"budget_tokens":7})");
  EXPECT_TRUE(read.answer.stream);
  EXPECT_THAT(read.ignored, ElementsAre("beam_width"));
}

// An agent's conversation goes on after a picture, or after what another service did by itself.
TEST(AnthropicRequestTest, WhatTheModelCantReadIsLeftOutOfResultsAndAnswers) {
  const auto read = ReadAnthropicMessages(Json::parse(R"({"max_tokens": 5, "messages": [
      {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "a page"}}]},
      {"role": "assistant", "content": [
          {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
          {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
          {"type": "text", "text": "Found."}, {"type": "tool_use", "id": "t", "name": "read", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
          {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}},
          {"type": "text", "text": "a caption"},
          {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
          {"type": "document", "source": {"type": "base64", "data": "aa"}}, {"type": "tool_reference"},
          {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a page"}]}},
          {"type": "search_result", "title": "t", "content": [{"type": "text", "text": " found"}]}]}]}]})"));
  ASSERT_TRUE(read.ok()) << read.status();
  const v1::Conversation& conversation = read->request.conversation();
  ASSERT_EQ(conversation.messages_size(), 3);
  const auto left_out = [](const std::string& type) {
    return "[" + type + ": left out, this model reads text alone]";
  };
  EXPECT_EQ(conversation.messages(0).content(), "a page");
  EXPECT_EQ(conversation.messages(1).content(),
            left_out("server_tool_use") + left_out("web_search_tool_result") + "Found.");
  EXPECT_EQ(conversation.messages(2).content(), left_out("image") + "a caption" + "words" +
                                                    left_out("document") + left_out("tool_reference") +
                                                    "a page found");
  EXPECT_FALSE(conversation.continue_last());
}

TEST(AnthropicRequestTest, AnAnswerGoesOnWithTheTextThatTheClientBeginsItWith) {
  const auto continues = [](const std::string& last) {
    const auto read = ReadAnthropicMessages(
        Json::parse(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}, )" + last + "]}"));
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() && read->request.conversation().continue_last();
  };
  EXPECT_TRUE(continues(R"({"role": "assistant", "content": "Hello, "})"));
  EXPECT_TRUE(continues(R"({"role": "assistant", "content": [{"type": "text", "text": "{"}]})"));
  EXPECT_FALSE(continues(R"({"role": "assistant", "content": ""})"));
  EXPECT_FALSE(
      continues(R"({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f"}]})"));
  EXPECT_FALSE(continues(R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]})"));
}

TEST(AnthropicRequestTest, WhatIsWrongIsNamed) {
  const std::pair<std::string, const char*> wrong[] = {
      {R"({"messages": []})", "max_tokens: "},
      {R"({"max_tokens": 5})", "messages: "},
      {R"({"max_tokens": 5, "messages": [{"role": "tool", "content": "x"}]})", "messages[0].role: "},
      {R"({"max_tokens": 5, "messages": [{"role": "user"}]})", "messages[0].content: "},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0].type: "},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url"}}]}]})",
       "messages[0].content[0].source: "},
      {R"({"max_tokens": 5, "messages": [{"role": "assistant", "content": [{"text": "x"}]}]})",
       "messages[0].content[0].type: "},
      {AnthropicWith(R"("system": 3)"), "system: "},
      {AnthropicWith(R"("tools": [{"type": "web_search_20250305", "name": "w"}])"), "tools[0].type: "},
      {AnthropicWith(R"("thinking": {"type": "much"})"), "thinking.type: "},
      {AnthropicWith(R"("cache_control": {"type": "ephemeral", "ttl": "1d"})"), "cache_control.ttl: "},
      {AnthropicWith(R"("mcp_servers": [{"name": "x"}])"), "mcp_servers: "},
      {AnthropicWith(R"("service_tier": "priority")"), "service_tier: "},
      {AnthropicWith(R"("grammar": "root ::= x")"), "grammar: "},
      {AnthropicWith(R"("mirostat": 2)"), "mirostat: "},
      {AnthropicWith(R"("speculation": "much")"), "speculation: "},
      {AnthropicWith(R"("regex": "x", "output_format": {"type": "json_schema", "schema": {}})"), "regex: "},
  };
  for (const auto& [body, field] : wrong) {
    const auto read = ReadAnthropicMessages(Json::parse(body));
    ASSERT_TRUE(absl::IsInvalidArgument(read.status())) << read.status() << body;
    EXPECT_THAT(std::string(read.status().message()), StartsWith(field)) << body;
  }
}

TEST(AnthropicRequestTest, FieldsThatAskForNothingAreTaken) {
  const auto read = ReadAnthropicMessages(Json::parse(AnthropicWith(
      R"("mcp_servers": [], "speculation": null, "service_tier": "standard_only", "mirostat": 0)")));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->ignored, testing::IsEmpty());
  EXPECT_FALSE(read->request.has_constraint());
  EXPECT_FALSE(read->request.has_options());
}

TEST(AnthropicRequestTest, HowItIsDrafted) {
  const auto read = ReadAnthropicMessages(Json::parse(AnthropicWith(R"("speculation": "off")")));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Shown(read->request.options()), R"({"speculation":"SPECULATION_OFF"})");
  EXPECT_THAT(read->ignored, testing::IsEmpty());
}

TEST(AnthropicRequestTest, CountsNeedNoLimit) {
  const auto read = ReadAnthropicCount(
      Json::parse(R"({"messages": [{"role": "user", "content": "hi"}], "thinking": {"type": "disabled"}})"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->chat().conversation().messages_size(), 1);
  EXPECT_TRUE(read->chat().thinking().has_enabled());
  EXPECT_FALSE(read->chat().thinking().enabled());
  EXPECT_EQ(ReadAnthropicCount(Json::parse(R"({"messages": [{"role": "user", "content": "hi"}],
                                                "output_config": {"effort": "low"}})"))
                ->chat()
                .thinking()
                .effort(),
            "low");
  std::vector<std::string> ignored;
  ASSERT_TRUE(
      ReadAnthropicCount(
          Json::parse(
              R"({"messages": [{"role": "user", "content": "hi", "x": 1}], "y": 1, "max_tokens": 3})"),
          {}, &ignored)
          .ok());
  EXPECT_THAT(ignored, ElementsAre("y", "messages[].x"));
}

}  // namespace
}  // namespace baton::gateway
