#include "gateway/mapping/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gateway/shown.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

OpenAiChat Chat(const std::string& body) {
  auto chat = ReadOpenAiChat(Json::parse(body));
  EXPECT_TRUE(chat.ok()) << chat.status() << "\n" << body;
  return chat.ok() ? *chat : OpenAiChat{};
}

std::string RefusedChat(const std::string& body) {
  const auto chat = ReadOpenAiChat(Json::parse(body));
  EXPECT_TRUE(absl::IsInvalidArgument(chat.status())) << chat.status() << "\n" << body;
  return std::string(chat.status().message());
}

// A body of one message with more members.
std::string OpenAiWith(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" + (more.empty() ? "" : ", " + more) + "}";
}

constexpr const char* kOpenAiTools =
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

TEST(OpenAiRequestTest, MarksOfTheCacheAtParts) {
  const OpenAiChat chat = Chat(R"({"messages": [
      {"role": "system", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B",
       "cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"type": "text", "text": "C"}]},
      {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]})");
  EXPECT_EQ(
      Shown(chat.request.conversation()),
      R"({"messages":[{"role":"system","parts":[{"text":"A"},{"text":"B","cache":{"ttl":"CACHE_TTL_1H"}},{"text":"C"}]},)"
      R"({"role":"user","parts":[{"text":"hi","cache":{"ttl":"CACHE_TTL_5M"}}]}]})");
  EXPECT_THAT(
      RefusedChat(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "forever"}}]}]})"),
      HasSubstr("messages[0].content[0].cache_control.type: "));
}

TEST(OpenAiRequestTest, ReusableParts) {
  const OpenAiChat chat = Chat(R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "A", "reusable": true}, {"type": "text", "text": "B", "reusable": false}]}]})");
  EXPECT_EQ(Shown(chat.request.conversation()),
            R"({"messages":[{"role":"user","parts":[{"text":"A","reusable":true},{"text":"B"}]}]})");
  EXPECT_THAT(
      RefusedChat(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "A", "reusable": 1}]}]})"),
      HasSubstr("messages[0].content[0].reusable: "));
}

TEST(OpenAiRequestTest, SamplingStopsAndOptions) {
  const OpenAiChat chat = Chat(OpenAiWith(
      R"("temperature": 0.5, "top_p": 1, "top_k": -1, "min_p": 0.25, "seed": 7, "presence_penalty": 0.5,
         "frequency_penalty": -0.5, "repetition_penalty": 1.5, "logit_bias": {"5": -100}, "max_tokens": 3,
         "max_completion_tokens": 4.0, "stop": ["a", "b"], "stop_token_ids": [9], "ignore_eos": true, "n": 2,
         "priority": 1, "speculation": "past-answers", "prompt_cache_key": "s", "logprobs": true,
         "top_logprobs": 3, "stream": true,
         "stream_options": {"include_usage": true})"));
  EXPECT_EQ(Shown(chat.request.sampling()),
            R"({"temperature":0.5,"top_k":0,"top_p":1,"min_p":0.25,"seed":"7","repetition_penalty":1.5,)"
            R"("presence_penalty":0.5,"frequency_penalty":-0.5,"logit_bias":{"5":-100}})");
  EXPECT_EQ(Shown(chat.request.stop()),
            R"({"max_tokens":4,"stop":["a","b"],"stop_token_ids":[9],"ignore_eos":true})");
  EXPECT_EQ(Shown(chat.request.options()),
            R"({"n":2,"priority":1,"session_id":"s","speculation":"SPECULATION_PAST_ANSWERS"})");
  EXPECT_THAT(
      RefusedChat(OpenAiWith(R"("speculation": "unspecified")")),
      HasSubstr("speculation: not one of off, auto, ngram, past-answers, grammar, draft-model, self"));
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("speculation": true)")), HasSubstr("speculation: "));
  EXPECT_EQ(Shown(chat.request.output()), R"({"logprobs":true,"top_logprobs":3})");
  EXPECT_TRUE(chat.answer.stream);
  EXPECT_TRUE(chat.answer.usage);
  EXPECT_THAT(Chat(OpenAiWith(R"("stop": "x")")).request.stop().stop(), ElementsAre("x"));
  // A null is a field that is not there.
  EXPECT_EQ(Shown(Chat(OpenAiWith(R"("temperature": null, "stop": null, "tools": null, "n": null)")).request),
            Shown(Chat(OpenAiWith("")).request));
}

TEST(OpenAiRequestTest, ExplainIsAFlagOfBothEndpoints) {
  EXPECT_EQ(Shown(Chat(OpenAiWith(R"("explain": true)")).request.output()), R"({"explain":true})");
  EXPECT_FALSE(Chat(OpenAiWith("")).request.output().explain());
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("explain": 1)")), testing::StartsWith("explain: "));
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("explain": "yes")")), testing::StartsWith("explain: "));
  const auto completion = ReadOpenAiCompletion(Json::parse(R"({"prompt": ["a", "b"], "explain": true})"));
  ASSERT_TRUE(completion.ok()) << completion.status();
  for (const v1::GenerateRequest& request : completion->requests) {
    EXPECT_TRUE(request.output().explain());
  }
  EXPECT_THAT(completion->answer.ignored, IsEmpty());
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadOpenAiCompletion(Json::parse(R"({"prompt": "a", "explain": []})")).status()));
}

TEST(OpenAiRequestTest, ToolsKeepTheOrderOfTheirSchemas) {
  const OpenAiChat chat = Chat(OpenAiWith(kOpenAiTools));
  const v1::Tool& tool = chat.request.conversation().tools(0);
  EXPECT_EQ(tool.parameters_json(), R"({"type":"object","b":1,"a":2})");
  EXPECT_TRUE(tool.strict());
  EXPECT_FALSE(chat.request.has_tool_choice());
}

TEST(OpenAiRequestTest, ToolChoices) {
  const auto choice = [](const std::string& words) {
    return Shown(Chat(OpenAiWith(std::string(kOpenAiTools) + ", " + words)).request.tool_choice());
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
  EXPECT_FALSE(
      Chat(OpenAiWith(R"("tool_choice": "auto", "parallel_tool_calls": true)")).request.has_tool_choice());
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("tool_choice": "required")")), HasSubstr("tool_choice: "));
  EXPECT_THAT(RefusedChat(OpenAiWith(std::string(kOpenAiTools) + R"(, "tool_choice": "maybe")")),
              HasSubstr("tool_choice: "));
}

TEST(OpenAiRequestTest, Constraints) {
  const auto constraint = [](const std::string& words) {
    return Shown(Chat(OpenAiWith(words)).request.constraint());
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
  EXPECT_EQ(
      constraint(R"("response_format": {"type": "structural_tag", "structures": [
                       {"begin": "[f=a]", "schema": {"type": "object"}, "end": "[/f]"}], "triggers": ["[f="]})"),
      R"({"structural_tags":{"tags":[{"begin":"[f=a]","json_schema":"{\"type\":\"object\"}","end":"[/f]"}],)"
      R"("triggers":["[f="]}})");
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("response_format": {"type": "structural_tag", "triggers": ["<"]})")),
              HasSubstr("response_format.structures: "));
  EXPECT_THAT(
      RefusedChat(OpenAiWith(R"("response_format": {"type": "structural_tag", "structures": [{"begin": "<"}],
                           "triggers": ["<"]})")),
      HasSubstr("response_format.structures[0].schema: "));
  EXPECT_THAT(RefusedChat(OpenAiWith(
                  R"("response_format": {"type": "structural_tag", "structures": [], "triggers": [1]})")),
              HasSubstr("response_format.triggers: "));
  EXPECT_FALSE(Chat(OpenAiWith("")).request.has_constraint());
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("guided_regex": "a", "guided_choice": ["b"])")),
              HasSubstr("guided_choice: "));
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("structured_outputs": {"structural_tag": "x"})")),
              HasSubstr("structured_outputs.structural_tag: "));
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("response_format": {"type": "xml"})")),
              HasSubstr("response_format.type: "));
}

TEST(OpenAiRequestTest, Thinking) {
  EXPECT_EQ(Shown(Chat(OpenAiWith(R"("reasoning_effort": "high")")).request.thinking()),
            R"({"enabled":true,"effort":"high"})");
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("reasoning_effort": "hihg")")),
              HasSubstr("reasoning_effort: not one of none, "));
  EXPECT_EQ(Shown(Chat(OpenAiWith(R"("reasoning_effort": "none")")).request.thinking()),
            R"({"enabled":false})");
  const OpenAiChat chat =
      Chat(OpenAiWith(R"("chat_template_kwargs": {"enable_thinking": true, "x": [1, {"y": null}]})"));
  EXPECT_EQ(Shown(chat.request.thinking()), R"({"enabled":true})");
  EXPECT_EQ(Shown(chat.request.conversation().template_arguments()), R"({"x":[1,{"y":null}]})");
}

TEST(OpenAiRequestTest, UnknownMembersAreIgnoredAndNamedAndForeignOnesAreNot) {
  const OpenAiChat chat =
      Chat(OpenAiWith(R"("user": "u", "store": true, "metadata": {}, "beam_width": 3, "x": null)"));
  EXPECT_THAT(chat.answer.ignored, ElementsAre("beam_width"));
  EXPECT_THAT(Chat(OpenAiWith("")).answer.ignored, IsEmpty());
}

// An agent's conversation goes on after a picture.
TEST(OpenAiRequestTest, WhatTheModelCantReadIsLeftOutOfResults) {
  const OpenAiChat chat = Chat(R"({"messages": [{"role": "user", "content": "Look."},
      {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a caption "},
          {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}, {"type": "file"}]}]})");
  EXPECT_EQ(chat.request.conversation().messages(1).content(),
            "a caption [image_url: left out, this model reads text alone]"
            "[file: left out, this model reads text alone]");
  EXPECT_THAT(chat.answer.ignored, testing::Contains("messages[].content[].image_url"));
}

// As OpenAI, llama.cpp, SGLang and vLLM spell it.
TEST(OpenAiRequestTest, ASchemaIsEnforcedInEverySpelling) {
  const std::string schema = R"({"type":"object"})";
  const std::vector<std::string> spellings = {
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": )" + schema + "}}",
      R"("response_format": {"type": "json_schema", "schema": )" + schema + "}",
      R"("response_format": {"type": "json_object", "schema": )" + schema + "}",
      R"("json_schema": )" + schema,
      R"("json_schema": "{\"type\":\"object\"}")",
      R"("guided_json": )" + schema,
      R"("structured_outputs": {"json": )" + schema + "}"};
  for (const std::string& more : spellings) {
    const OpenAiChat chat = Chat(OpenAiWith(more));
    EXPECT_EQ(chat.request.constraint().json_schema(), schema) << more;
    EXPECT_THAT(chat.answer.ignored, IsEmpty()) << more;
    const auto completion = ReadOpenAiCompletion(Json::parse(R"({"prompt": "a", )" + more + "}"));
    ASSERT_TRUE(completion.ok()) << completion.status();
    EXPECT_EQ(completion->requests[0].constraint().json_schema(), schema) << more;
  }
  EXPECT_EQ(Chat(OpenAiWith(R"("regex": "[0-9]+")")).request.constraint().regex(), "[0-9]+");
  EXPECT_TRUE(
      Chat(OpenAiWith(R"("response_format": {"type": "json_object"})")).request.constraint().json_object());
  EXPECT_FALSE(
      Chat(
          OpenAiWith(
              R"("grammar": "", "regex": "", "json_schema": "", "format": "", "output_config": {}, "response_format": {"type": "text"})"))
          .request.has_constraint());
  const std::pair<std::string, const char*> refused[] = {
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema: "},
      {R"("grammar": "root ::= x")", "grammar: "},
      {R"("ebnf": "root ::= x")", "ebnf: "},
      {R"("output_format": {"type": "json_schema"})", "output_format: "},
      {R"("output_config": {"format": {}})", "output_config.format: "},
      {R"("format": "json")", "format: "},
      {R"("regex": "x", "response_format": {"type": "json_object"})", "regex: "},
      {R"("json_schema": {}, "guided_regex": "x")", "json_schema: "},
  };
  for (const auto& [more, field] : refused) {
    EXPECT_THAT(RefusedChat(OpenAiWith(more)), testing::StartsWith(field)) << more;
  }
}

TEST(OpenAiRequestTest, FormsThatClientsSendInGoodFaithAreTaken) {
  const OpenAiChat chat = Chat(OpenAiWith(
      R"("stop": ["", "x"], "top_p": 0, "tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "none"})"));
  EXPECT_THAT(chat.request.stop().stop(), ElementsAre("x"));
  EXPECT_GT(chat.request.sampling().top_p(), 0);
  EXPECT_LT(chat.request.sampling().top_p(), 1e-30);
  EXPECT_EQ(chat.request.conversation().tools(0).name(), "f");
  EXPECT_EQ(chat.request.tool_choice().mode(), v1::ToolChoice::MODE_NONE);
  EXPECT_THAT(Chat(OpenAiWith(R"("stop": "")")).request.stop().stop(), IsEmpty());
}

TEST(OpenAiRequestTest, ThinkingIsAskedForInEverySpelling) {
  for (const char* const on : {R"("enable_thinking": true)", R"("thinking": {"type": "enabled"})",
                               R"("chat_template_kwargs": {"enable_thinking": true})"}) {
    EXPECT_TRUE(Chat(OpenAiWith(on)).request.thinking().enabled()) << on;
  }
  const OpenAiChat off = Chat(OpenAiWith(R"("thinking": {"type": "disabled"})"));
  EXPECT_TRUE(off.request.thinking().has_enabled());
  EXPECT_TRUE(Chat(OpenAiWith(R"("thinking": true)")).request.thinking().enabled());
  EXPECT_FALSE(Chat(OpenAiWith(R"("thinking": {"type": "auto"})")).request.thinking().has_enabled());
  EXPECT_TRUE(Chat(OpenAiWith(R"("thinking": {"type": "adaptive"})")).request.thinking().enabled());
  EXPECT_FALSE(Chat(OpenAiWith(R"("thinking": {"type": "disabled", "budget_tokens": 0})"))
                   .request.thinking()
                   .enabled());
  EXPECT_EQ(
      Chat(OpenAiWith(R"("max_tokens": 5, "n_predict": 5, "max_new_tokens": 5)")).request.stop().max_tokens(),
      5u);
  EXPECT_FALSE(off.request.thinking().enabled());
  EXPECT_EQ(Chat(OpenAiWith(R"("thinking": {"type": "enabled", "budget_tokens": 9})"))
                .request.thinking()
                .budget_tokens(),
            9u);
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("thinking": {"type": "much"})")),
              testing::StartsWith("thinking.type: "));
}

TEST(OpenAiRequestTest, WhatChangesTheMeaningIsRefused) {
  for (const char* const more :
       {R"("modalities": ["text", "audio"])", R"("audio": {"voice": "x"})", R"("functions": [{"name": "f"}])",
        R"("function_call": "auto")", R"("web_search_options": {})"}) {
    EXPECT_THAT(RefusedChat(OpenAiWith(more)), HasSubstr(": ")) << more;
  }
  EXPECT_FALSE(Chat(OpenAiWith(R"("modalities": ["text"], "continue_final_message": false)")).answer.stream);
  // It changes no answer.
  EXPECT_THAT(Chat(OpenAiWith(R"("prediction": {"type": "content", "content": "a"})")).answer.ignored,
              ElementsAre("prediction"));
  EXPECT_THAT(
      RefusedChat(
          R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})"),
      HasSubstr("messages[0].content[0].type: "));
}

TEST(OpenAiRequestTest, UnknownMembersOfNestedObjectsAreNamedOnceAndWithoutIndices) {
  const OpenAiChat chat = Chat(R"({"messages": [
      {"role": "user", "name": "ada", "content": [{"type": "text", "text": "a", "detail": 1}, {"type": "text", "text": "b", "detail": 2}]},
      {"role": "assistant", "name": "bot", "refusal": null, "annotations": [], "content": null,
       "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "x": 1}}]},
      {"role": "tool", "tool_call_id": "c", "content": "1"}],
      "tools": [{"type": "function", "note": 1, "function": {"name": "f", "example": 1, "parameters": {"any": 1}}}],
      "tool_choice": {"type": "function", "why": 1, "function": {"name": "f"}},
      "stream_options": {"include_usage": true, "include_obfuscation": false},
      "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {}}},
      "zzz": 1})");
  EXPECT_THAT(chat.answer.ignored,
              ElementsAre("zzz", "messages[].content[].detail", "messages[].name",
                          "messages[].tool_calls[].function.x", "tools[].function.example", "tools[].note",
                          "tool_choice.why", "stream_options.include_obfuscation"));
  // Whoever sends very many of them gets no longer a list.
  std::string many;
  for (int i = 0; i < 1000; ++i)
    many += (i == 0 ? "" : ", ") + std::string("\"k") + std::to_string(i) + "\": 1";
  EXPECT_EQ(Chat(R"({"messages": [{"role": "user", "content": "hi", )" + many + "}]}").answer.ignored.size(),
            64u);
}

TEST(OpenAiRequestTest, FieldsOfOtherServersAreServedOrRefusedByName) {
  const char* const refused[] = {R"("min_tokens": 3)",
                                 R"("bad_words": ["x"])",
                                 R"("allowed_token_ids": [1])",
                                 R"("prompt_logprobs": 0)",
                                 R"("truncate_prompt_tokens": -1)",
                                 R"("include_stop_str_in_output": true)",
                                 R"("documents": [{"title": "t"}])",
                                 R"("chat_template": "{{ x }}")",
                                 R"("add_special_tokens": false)",
                                 R"("use_beam_search": true)",
                                 R"("length_penalty": 2)",
                                 R"("logits_processors": ["x"])",
                                 R"("return_token_ids": true)",
                                 R"("return_tokens_as_token_ids": true)",
                                 R"("cache_salt": "x")",
                                 R"("kv_transfer_params": {"a": 1})",
                                 R"("lora_path": "x")",
                                 R"("service_tier": "flex")",
                                 R"("typical_p": 0.5)",
                                 R"("mirostat": 2)",
                                 R"("dry_multiplier": 0.8)",
                                 R"("xtc_probability": 0.5)",
                                 R"("samplers": ["top_k"])",
                                 R"("repeat_penalty": 1.1)",
                                 R"("n_predict": 5)",
                                 R"("max_new_tokens": 5)"};
  for (const std::string more : refused) {
    const std::string name = more.substr(1, more.find('"', 1) - 1);
    EXPECT_THAT(RefusedChat(OpenAiWith(more)), testing::StartsWith(name + ": ")) << more;
    const auto completion = ReadOpenAiCompletion(Json::parse(R"({"prompt": "a", )" + more + "}"));
    EXPECT_THAT(std::string(completion.status().message()), testing::StartsWith(name + ": ")) << more;
  }
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("add_generation_prompt": false)")),
              HasSubstr("add_generation_prompt: "));
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("add_generation_prompt": true, "continue_final_message": true)")),
              HasSubstr("add_generation_prompt: "));
  EXPECT_TRUE(Chat(OpenAiWith(R"("add_generation_prompt": false, "continue_final_message": true)"))
                  .request.conversation()
                  .continue_last());
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("echo": true)")), HasSubstr("echo: "));
  EXPECT_THAT(RefusedChat(OpenAiWith(R"("best_of": 2)")), HasSubstr("best_of: "));
  // The defaults of those servers ask for nothing.
  const OpenAiChat chat = Chat(OpenAiWith(
      R"("min_tokens": 0, "bad_words": [], "prompt_logprobs": null, "include_stop_str_in_output": false,
         "documents": [], "chat_template": null, "add_special_tokens": true, "use_beam_search": false,
         "length_penalty": 1.0, "add_generation_prompt": true, "echo": false, "best_of": 1,
         "service_tier": "default", "typical_p": 1.0, "mirostat": 0, "repeat_penalty": 1.0, "n_predict": -1,
         "top_n_sigma": -1)"));
  EXPECT_EQ(Shown(chat.request), Shown(Chat(OpenAiWith("")).request));
  EXPECT_THAT(chat.answer.ignored, IsEmpty());
  const OpenAiChat served = Chat(
      OpenAiWith(R"("skip_special_tokens": false, "thinking_token_budget": 9, "include_reasoning": false)"));
  EXPECT_TRUE(served.request.output().special_tokens());
  EXPECT_EQ(Shown(served.request.thinking()), R"({"budget_tokens":9,"show":"SHOW_NONE"})");
}

TEST(OpenAiRequestTest, MessagesAreBounded) {
  Json body = {{"messages", Json::array()}};
  for (size_t i = 0; i < kMaxMessages; ++i) body["messages"].push_back({{"role", "user"}, {"content", "x"}});
  EXPECT_TRUE(ReadOpenAiChat(body).ok());
  body["messages"].push_back(body["messages"][0]);
  EXPECT_THAT(RefusedChat(body.dump()), HasSubstr("messages: 20001 of them"));
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
  for (const auto& [body, field] : wrong) EXPECT_THAT(RefusedChat(body), testing::StartsWith(field)) << body;
  EXPECT_EQ(ReadOpenAiChat(Json::parse("[]")).status().message(), "the body is not a JSON object");
}

TEST(OpenAiRequestTest, Completions) {
  const auto read = [](const std::string& body) { return ReadOpenAiCompletion(Json::parse(body)); };
  EXPECT_EQ(
      Shown(read(R"({"model": "m", "prompt": "a", "logprobs": 2})")->requests[0]),
      R"({"model":"m","text":"a","sampling":{},"stop":{"max_tokens":16},"output":{"logprobs":true,"top_logprobs":2},"options":{},"overflow":{"mode":"MODE_CLAMP_OUTPUT"}})");
  EXPECT_EQ(read(R"({"prompt": ["a"]})")->requests[0].text(), "a");
  EXPECT_THAT(read(R"({"prompt": [[1, 2]]})")->requests[0].token_ids().ids(), ElementsAre(1, 2));
  EXPECT_THAT(read(R"({"prompt": [3]})")->requests[0].token_ids().ids(), ElementsAre(3));
  EXPECT_THAT(read(R"({"prompt": "a", "echo": true, "best_of": 1})")->answer.echoes, ElementsAre("a"));
  EXPECT_THAT(read(R"({"prompt": "a"})")->answer.echoes, IsEmpty());
  for (const char* const wrong :
       {R"({})", R"({"prompt": 3})", R"({"prompt": [[["a"]]]})", R"({"prompt": "a", "suffix": "x"})",
        R"({"prompt": "a", "best_of": 2})", R"({"prompt": "a", "echo": true, "logprobs": 1, "n": 2})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(read(wrong).status())) << wrong;
  }
  const std::pair<const char*, const char*> told[] = {
      {R"({"prompt": [1, -2]})", "prompt: neither"},
      {R"({"prompt": [1, "a"]})", "prompt: neither"},
      {R"({"prompt": ["a", 1]})", "prompt[1]: neither"},
      {R"({"prompt": ["a", "b", [1, "c"]]})", "prompt[2]: neither"},
      {R"({"prompt": [1], "echo": true, "stream": true})", "echo: of token ids, not served as a stream"},
      {R"({"prompt": [1], "echo": true, "n": 2})", "n: one choice has a prompt's tokens"}};
  for (const auto& [body, why] : told) {
    const auto got = read(body);
    EXPECT_THAT(std::string(got.status().message()), testing::StartsWith(why)) << body;
  }
}

TEST(OpenAiRequestTest, APromptThatIsEchoedWithLogProbabilitiesIsAskedForThem) {
  const auto read = [](const std::string& body) {
    auto completion = ReadOpenAiCompletion(Json::parse(body));
    EXPECT_TRUE(completion.ok()) << completion.status();
    return *std::move(completion);
  };
  const OpenAiCompletion text =
      read(R"({"prompt": ["a", "b"], "echo": true, "logprobs": 3, "max_tokens": 1})");
  EXPECT_EQ(Shown(text.requests[1].output()), R"({"logprobs":true,"top_logprobs":3,"prompt_logprobs":true})");
  EXPECT_THAT(text.answer.echoes, ElementsAre("a", "b"));
  EXPECT_TRUE(text.answer.prompt_logprobs && text.answer.logprobs);
  // Token ids are echoed by the same means, and the log probabilities are not shown.
  const OpenAiCompletion ids = read(R"({"prompt": [1, 2], "echo": true})");
  EXPECT_EQ(Shown(ids.requests[0].output()), R"({"prompt_logprobs":true})");
  EXPECT_TRUE(ids.answer.prompt_logprobs && !ids.answer.logprobs);
  for (const char* const body : {R"({"prompt": "a", "echo": true})", R"({"prompt": "a", "logprobs": 1})"}) {
    EXPECT_FALSE(read(body).requests[0].output().prompt_logprobs()) << body;
  }
}

TEST(OpenAiRequestTest, SeveralPromptsShareAllElse) {
  const auto several = ReadOpenAiCompletion(Json::parse(
      R"({"model": "m", "prompt": ["a", [1, 2], "c"], "n": 2, "seed": 7, "max_tokens": 3, "stop": "x"})"));
  ASSERT_TRUE(several.ok()) << several.status();
  ASSERT_EQ(several->requests.size(), 3u);
  EXPECT_EQ(several->answer.n, 2u);
  const char* const prompts[] = {R"("a")", "[1, 2]", R"("c")"};
  for (size_t i = 0; i < 3; ++i) {
    const auto alone =
        ReadOpenAiCompletion(Json::parse(R"({"model": "m", "prompt": )" + std::string(prompts[i]) +
                                         R"(, "n": 2, "seed": 7, "max_tokens": 3, "stop": "x"})"));
    EXPECT_EQ(Shown(several->requests[i]), Shown(alone->requests[0]));
  }
  EXPECT_THAT(ReadOpenAiCompletion(Json::parse(R"({"prompt": ["a", "b"], "echo": true})"))->answer.echoes,
              ElementsAre("a", "b"));
}

TEST(OpenAiRequestTest, PromptsAreBoundedAndSoIsWhatIsSentWithEach) {
  Json body = {{"prompt", Json::array()}};
  for (size_t i = 0; i < kMaxPrompts; ++i) body["prompt"].push_back("x");
  EXPECT_EQ(ReadOpenAiCompletion(body)->requests.size(), kMaxPrompts);
  body["guided_regex"] = std::string(200'000, 'a');
  EXPECT_THAT(std::string(ReadOpenAiCompletion(body).status().message()),
              testing::StartsWith("prompt: 64 of them, and all else is sent with each: "));
  body["prompt"] = Json::array({"x"});
  EXPECT_TRUE(ReadOpenAiCompletion(body).ok()) << "once it may be as long as the body";
  body["guided_regex"] = nullptr;
  for (size_t i = 0; i < kMaxPrompts; ++i) body["prompt"].push_back(Json::array({1}));
  EXPECT_EQ(ReadOpenAiCompletion(body).status().message(),
            "prompt: 65 of them; at most 64 are taken with one request");
}

TEST(OpenAiRequestTest, TokensOfTextAndOfConversations) {
  EXPECT_EQ(ReadTokenize(Json::parse(R"({"prompt": "a"})"))->generate().text(), "a");
  EXPECT_EQ(ReadTokenize(Json::parse(OpenAiWith("")))->chat().conversation().messages_size(), 1);
  EXPECT_THAT(ReadDetokenize(Json::parse(R"({"tokens": [1, 2]})"))->token_ids(), ElementsAre(1, 2));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadDetokenize(Json::parse(R"({"tokens": [-1]})")).status()));
  std::vector<std::string> ignored;
  EXPECT_TRUE(ReadTokenize(Json::parse(R"({"prompt": "a", "x": 1})"), &ignored).ok());
  EXPECT_THAT(ignored, ElementsAre("x"));
  EXPECT_TRUE(ReadTokenize(Json::parse(OpenAiWith(R"("y": 1)")), &ignored).ok());
  EXPECT_THAT(ignored, ElementsAre("y"));
  EXPECT_TRUE(ReadDetokenize(Json::parse(R"({"tokens": [1], "z": 1})"), &ignored).ok());
  EXPECT_THAT(ignored, ElementsAre("z"));
}

}  // namespace
}  // namespace baton::gateway
