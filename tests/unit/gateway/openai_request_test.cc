#include "gateway/mapping/openai_request.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The request as protobuf's JSON, so that a test sees all of it.
std::string Shown(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  return text;
}

OpenAiChat Chat(const std::string& body) {
  auto chat = ReadOpenAiChat(Json::parse(body));
  EXPECT_TRUE(chat.ok()) << chat.status() << "\n" << body;
  return chat.ok() ? *chat : OpenAiChat{};
}

std::string Refused(const std::string& body) {
  const auto chat = ReadOpenAiChat(Json::parse(body));
  EXPECT_TRUE(absl::IsInvalidArgument(chat.status())) << chat.status() << "\n" << body;
  return std::string(chat.status().message());
}

// A body of one message with more members.
std::string With(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" + (more.empty() ? "" : ", " + more) + "}";
}

constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "description": "d", "strict": true, "parameters": {"type": "object", "b": 1, "a": 2}}}])";

TEST(OpenAiRequestTest, AConversationWithAllThatItCanHold) {
  const OpenAiChat chat = Chat(R"({"model": "m", "messages": [
      {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
      {"role": "user", "content": "hi", "name": "ada"},
      {"role": "assistant", "content": null, "reasoning_content": "hm",
       "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "42"}]})");
  EXPECT_EQ(
      Shown(chat.request),
      R"({"model":"m","conversation":{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"},)"
      R"({"role":"assistant","reasoning_content":"hm","tool_calls":[{"id":"c1","name":"f","arguments_json":"{\"x\": 1}"}]},)"
      R"({"role":"tool","content":"42","tool_call_id":"c1"}]},"sampling":{},"stop":{},"output":{},"options":{},)"
      R"("overflow":{"mode":"MODE_CLAMP_OUTPUT"}})");
  EXPECT_FALSE(chat.answer.stream);
}

TEST(OpenAiRequestTest, SamplingStopsAndOptions) {
  const OpenAiChat chat = Chat(With(
      R"("temperature": 0.5, "top_p": 1, "top_k": -1, "min_p": 0.25, "seed": 7, "presence_penalty": 0.5,
         "frequency_penalty": -0.5, "repetition_penalty": 1.5, "logit_bias": {"5": -100}, "max_tokens": 3,
         "max_completion_tokens": 4.0, "stop": ["a", "b"], "stop_token_ids": [9], "ignore_eos": true, "n": 2,
         "priority": 1, "prompt_cache_key": "s", "logprobs": true, "top_logprobs": 3, "stream": true,
         "stream_options": {"include_usage": true})"));
  EXPECT_EQ(Shown(chat.request.sampling()),
            R"({"temperature":0.5,"top_k":0,"top_p":1,"min_p":0.25,"seed":"7","repetition_penalty":1.5,)"
            R"("presence_penalty":0.5,"frequency_penalty":-0.5,"logit_bias":{"5":-100}})");
  EXPECT_EQ(Shown(chat.request.stop()),
            R"({"max_tokens":4,"stop":["a","b"],"stop_token_ids":[9],"ignore_eos":true})");
  EXPECT_EQ(Shown(chat.request.options()), R"({"n":2,"priority":1,"session_id":"s"})");
  EXPECT_EQ(Shown(chat.request.output()), R"({"logprobs":true,"top_logprobs":3})");
  EXPECT_TRUE(chat.answer.stream);
  EXPECT_TRUE(chat.answer.usage);
  EXPECT_THAT(Chat(With(R"("stop": "x")")).request.stop().stop(), ElementsAre("x"));
  // A null is a field that is not there.
  EXPECT_EQ(Shown(Chat(With(R"("temperature": null, "stop": null, "tools": null, "n": null)")).request),
            Shown(Chat(With("")).request));
}

TEST(OpenAiRequestTest, ToolsKeepTheOrderOfTheirSchemas) {
  const OpenAiChat chat = Chat(With(kTools));
  const v1::Tool& tool = chat.request.conversation().tools(0);
  EXPECT_EQ(tool.parameters_json(), R"({"type":"object","b":1,"a":2})");
  EXPECT_TRUE(tool.strict());
  EXPECT_FALSE(chat.request.has_tool_choice());
}

TEST(OpenAiRequestTest, ToolChoices) {
  const auto choice = [](const std::string& words) {
    return Shown(Chat(With(std::string(kTools) + ", " + words)).request.tool_choice());
  };
  EXPECT_EQ(choice(R"("tool_choice": "auto")"), R"({"mode":"MODE_AUTO"})");
  EXPECT_EQ(choice(R"("tool_choice": "none")"), R"({"mode":"MODE_NONE"})");
  EXPECT_EQ(choice(R"("tool_choice": "required", "parallel_tool_calls": false)"),
            R"({"mode":"MODE_REQUIRED","parallel":false})");
  EXPECT_EQ(choice(R"("tool_choice": {"type": "function", "function": {"name": "f"}})"),
            R"({"mode":"MODE_REQUIRED","names":["f"]})");
  EXPECT_EQ(choice(R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto",
                   "tools": [{"type": "function", "function": {"name": "f"}}]}})"),
            R"({"mode":"MODE_AUTO","names":["f"]})");
  // Clients send these without tools too.
  EXPECT_FALSE(Chat(With(R"("tool_choice": "auto", "parallel_tool_calls": true)")).request.has_tool_choice());
  EXPECT_THAT(Refused(With(R"("tool_choice": "required")")), HasSubstr("tool_choice: "));
  EXPECT_THAT(Refused(With(std::string(kTools) + R"(, "tool_choice": "maybe")")), HasSubstr("tool_choice: "));
}

TEST(OpenAiRequestTest, Constraints) {
  const auto constraint = [](const std::string& words) {
    return Shown(Chat(With(words)).request.constraint());
  };
  EXPECT_EQ(constraint(R"("response_format": {"type": "text"})"), "{}");
  EXPECT_EQ(constraint(R"("response_format": {"type": "json_object"})"), R"({"json_object":true})");
  EXPECT_EQ(
      constraint(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
                       "schema": {"type": "object", "b": 1, "a": 2}}})"),
      R"({"json_schema":"{\"type\":\"object\",\"b\":1,\"a\":2}"})");
  EXPECT_EQ(constraint(R"("structured_outputs": {"regex": "a+"})"), R"({"regex":"a+"})");
  EXPECT_EQ(constraint(R"("guided_choice": ["a", "b"])"), R"({"choices":{"values":["a","b"]}})");
  EXPECT_EQ(constraint(R"("guided_json": "{}")"), R"({"json_schema":"{}"})");
  EXPECT_EQ(constraint(R"("guided_grammar": "start: \"a\"")"), R"({"lark":"start: \"a\""})");
  EXPECT_FALSE(Chat(With("")).request.has_constraint());
  EXPECT_THAT(Refused(With(R"("guided_regex": "a", "guided_choice": ["b"])")), HasSubstr("guided_choice: "));
  EXPECT_THAT(Refused(With(R"("structured_outputs": {"structural_tag": "x"})")),
              HasSubstr("structured_outputs.structural_tag: "));
  EXPECT_THAT(Refused(With(R"("response_format": {"type": "xml"})")), HasSubstr("response_format.type: "));
}

TEST(OpenAiRequestTest, Thinking) {
  EXPECT_EQ(Shown(Chat(With(R"("reasoning_effort": "high")")).request.thinking()), R"({"effort":"high"})");
  EXPECT_EQ(Shown(Chat(With(R"("reasoning_effort": "none")")).request.thinking()), R"({"enabled":false})");
  const OpenAiChat chat =
      Chat(With(R"("chat_template_kwargs": {"enable_thinking": true, "x": [1, {"y": null}]})"));
  EXPECT_EQ(Shown(chat.request.thinking()), R"({"enabled":true})");
  EXPECT_EQ(Shown(chat.request.conversation().template_arguments()), R"({"x":[1,{"y":null}]})");
}

TEST(OpenAiRequestTest, UnknownMembersAreIgnoredAndNamedAndForeignOnesAreNot) {
  const OpenAiChat chat =
      Chat(With(R"("user": "u", "store": true, "metadata": {}, "beam_width": 3, "x": null)"));
  EXPECT_THAT(chat.answer.ignored, ElementsAre("beam_width"));
  EXPECT_THAT(Chat(With("")).answer.ignored, IsEmpty());
}

TEST(OpenAiRequestTest, WhatChangesTheMeaningIsRefused) {
  for (const char* const more :
       {R"("modalities": ["text", "audio"])", R"("audio": {"voice": "x"})", R"("functions": [{"name": "f"}])",
        R"("function_call": "auto")", R"("web_search_options": {})", R"("continue_final_message": true)"}) {
    EXPECT_THAT(Refused(With(more)), HasSubstr(": ")) << more;
  }
  EXPECT_FALSE(Chat(With(R"("modalities": ["text"], "continue_final_message": false)")).answer.stream);
  EXPECT_THAT(
      Refused(
          R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})"),
      HasSubstr("messages[0].content[0].type: "));
}

TEST(OpenAiRequestTest, WrongTypesNameTheirField) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({})", "messages: "},
      {R"({"messages": {}})", "messages: "},
      {R"({"messages": ["hi"]})", "messages[0]: "},
      {R"({"messages": [{"role": 3}]})", "messages[0].role: "},
      {R"({"messages": [{"role": "user", "content": 3}]})", "messages[0].content: "},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})",
       "messages[0].tool_calls[0].function: "},
      {R"({"messages": [], "temperature": "hot"})", "temperature: "},
      {R"({"messages": [], "max_tokens": -1})", "max_tokens: "},
      {R"({"messages": [], "max_tokens": 1.5})", "max_tokens: "},
      {R"({"messages": [], "max_tokens": 1e30})", "max_tokens: "},
      {R"({"messages": [], "logit_bias": {"x": 1}})", "logit_bias: "},
      {R"({"messages": [], "stop": [1]})", "stop: "},
      {R"({"messages": [], "stop_token_ids": [99999999999]})", "stop_token_ids: "},
      {R"({"messages": [], "stream": "yes"})", "stream: "},
      {R"({"messages": [], "tools": [{"type": "retrieval"}]})", "tools[0].type: "},
  };
  for (const auto& [body, field] : wrong) EXPECT_THAT(Refused(body), testing::StartsWith(field)) << body;
  EXPECT_EQ(ReadOpenAiChat(Json::parse("[]")).status().message(), "the body is not a JSON object");
}

TEST(OpenAiRequestTest, Completions) {
  const auto read = [](const std::string& body) { return ReadOpenAiCompletion(Json::parse(body)); };
  EXPECT_EQ(
      Shown(read(R"({"model": "m", "prompt": "a", "logprobs": 2})")->request),
      R"({"model":"m","text":"a","sampling":{},"stop":{"max_tokens":16},"output":{"logprobs":true,"top_logprobs":2},"options":{}})");
  EXPECT_EQ(read(R"({"prompt": ["a"]})")->request.text(), "a");
  EXPECT_THAT(read(R"({"prompt": [[1, 2]]})")->request.token_ids().ids(), ElementsAre(1, 2));
  EXPECT_THAT(read(R"({"prompt": [3]})")->request.token_ids().ids(), ElementsAre(3));
  EXPECT_TRUE(read(R"({"prompt": "a", "echo": true, "best_of": 1})")->echo);
  for (const char* const wrong :
       {R"({})", R"({"prompt": ["a", "b"]})", R"({"prompt": 3})", R"({"prompt": "a", "suffix": "x"})",
        R"({"prompt": "a", "best_of": 2})", R"({"prompt": "a", "echo": true, "logprobs": 1})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(read(wrong).status())) << wrong;
  }
}

TEST(OpenAiRequestTest, TokensOfTextAndOfConversations) {
  EXPECT_EQ(ReadTokenize(Json::parse(R"({"prompt": "a"})"))->text(), "a");
  EXPECT_EQ(ReadTokenize(Json::parse(With("")))->conversation().messages_size(), 1);
  EXPECT_THAT(ReadDetokenize(Json::parse(R"({"tokens": [1, 2]})"))->token_ids(), ElementsAre(1, 2));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadDetokenize(Json::parse(R"({"tokens": [-1]})")).status()));
}

}  // namespace
}  // namespace baton::gateway
