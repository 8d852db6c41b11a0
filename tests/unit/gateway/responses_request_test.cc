#include "gateway/mapping/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/mapping/signature.h"
#include "tests/unit/gateway/shown.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ResponsesRequest ReadResponse(const std::string& body) {
  auto read = ReadResponses(Json::parse(body));
  EXPECT_TRUE(read.ok()) << read.status() << "\n" << body;
  return read.ok() ? *read : ResponsesRequest{};
}

std::string RefusedResponse(const std::string& body) {
  const auto read = ReadResponses(Json::parse(body));
  EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status() << "\n" << body;
  return std::string(read.status().message());
}

// A body of one text with more members.
std::string ResponsesWith(const std::string& more) {
  return R"({"input": "hi")" + (more.empty() ? "" : ", " + more) + "}";
}

constexpr const char* kResponsesTools =
    R"("tools": [{"type": "function", "name": "f", "description": "d", "strict": true, "parameters": {"type": "object", "b": 1, "a": 2}}])";

TEST(ResponsesRequestTest, ATextAndInstructions) {
  const ResponsesRequest read = ReadResponse(R"({"model": "m", "instructions": "Be brief.", "input": "hi"})");
  EXPECT_EQ(
      Shown(read.request),
      R"({"model":"m","conversation":{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}]},)"
      R"("sampling":{},"options":{},"overflow":{"mode":"MODE_CLAMP_OUTPUT"}})");
  EXPECT_FALSE(read.answer.stream);
  EXPECT_THAT(read.answer.ignored, IsEmpty());
}

TEST(ResponsesRequestTest, ItemsOfOneTurnAreOneMessage) {
  const ResponsesRequest read = ReadResponse(R"({"input": [
      {"role": "developer", "content": "Be brief."},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "no"}], "encrypted_content": "x",
       "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
       "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}", "status": "completed"},
      {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "42"},
      {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "43"}, {"type": "input_image"}]},
      {"role": "assistant", "content": "Both."}]})");
  EXPECT_EQ(
      Shown(read.request.conversation()),
      R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"ab"},)"
      R"({"role":"assistant","content":"Let me see.","reasoning_content":"hm","tool_calls":[{"id":"c1","name":"f","arguments_json":"{\"x\": 1}"},)"
      R"({"id":"c2","name":"g","arguments_json":"{}"}]},{"role":"tool","content":"42","tool_call_id":"c1"},)"
      R"({"role":"tool","content":"43[input_image: left out, this model reads text alone]","tool_call_id":"c2"},{"role":"assistant","content":"Both."}]})");
}

// Clients send thinking back as they keep it: its text, what Baton has made of it, or its summary.
TEST(ResponsesRequestTest, ThinkingComesBackInAnyForm) {
  const auto thinking = [](const std::string& members) {
    const ResponsesRequest read =
        ReadResponse(R"({"input": [{"role": "user", "content": "hi"}, {"type": "reasoning", "id": "r", )" +
                     members + R"(}, {"role": "assistant", "content": "Yes."}]})");
    return read.request.conversation().messages(1).reasoning_content();
  };
  const std::string summary = R"("summary": [{"type": "summary_text", "text": "short"}])";
  EXPECT_EQ(thinking(summary + R"(, "content": [{"type": "reasoning_text", "text": "long"}])"), "long");
  EXPECT_EQ(thinking(summary + R"(, "encrypted_content": ")" + SignatureOf("hidden") + "\""), "hidden");
  EXPECT_EQ(thinking(summary + R"(, "encrypted_content": "gAAA", "content": [])"), "short");
  EXPECT_EQ(thinking(R"("summary": [], "encrypted_content": null)"), "");
}

TEST(ResponsesRequestTest, ToolsAndTheirChoice) {
  EXPECT_EQ(
      Shown(ReadResponse(ResponsesWith(kResponsesTools)).request.conversation().tools(0)),
      R"({"name":"f","description":"d","parameters_json":"{\"type\":\"object\",\"b\":1,\"a\":2}","strict":true})");
  const auto choice = [](const std::string& more) {
    return Shown(
        ReadResponse(ResponsesWith(std::string(kResponsesTools) + ", " + more)).request.tool_choice());
  };
  EXPECT_EQ(choice(R"("tool_choice": "required", "parallel_tool_calls": false)"),
            R"({"mode":"MODE_REQUIRED","parallel":false})");
  EXPECT_EQ(choice(R"("tool_choice": {"type": "function", "name": "f"})"),
            R"({"mode":"MODE_REQUIRED","names":["f"]})");
  EXPECT_EQ(
      choice(
          R"("tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]})"),
      R"({"mode":"MODE_AUTO","names":["f"]})");
  EXPECT_FALSE(ReadResponse(ResponsesWith(R"("tool_choice": "auto", "parallel_tool_calls": true)"))
                   .request.has_tool_choice());
  EXPECT_THAT(RefusedResponse(ResponsesWith(R"("tool_choice": "required")")),
              HasSubstr("there are no tools"));
  EXPECT_THAT(RefusedResponse(ResponsesWith(R"("tools": [{"type": "web_search"}])")),
              HasSubstr("\"web_search\" does not run here"));
  EXPECT_THAT(RefusedResponse(ResponsesWith(std::string(kResponsesTools) + R"(, "tool_choice": "f")")),
              HasSubstr("tool_choice: "));
  EXPECT_THAT(
      RefusedResponse(ResponsesWith(std::string(kResponsesTools) + R"(, "tool_choice": {"type": "mcp"})")),
      HasSubstr("tool_choice.type: "));
}

TEST(ResponsesRequestTest, FunctionsOfANamespaceHaveItsNameBeforeTheirs) {
  const std::string tools =
      R"("tools": [{"type": "function", "name": "read"}, {"type": "namespace", "name": "files", "description": "All files.",
      "tools": [{"type": "function", "name": "read", "description": "Reads one.", "parameters": {"type": "object"}}, {"type": "function", "name": "list"}]}])";
  const ResponsesRequest read = ReadResponse(ResponsesWith(tools));
  const auto& made = read.request.conversation().tools();
  ASSERT_EQ(made.size(), 3);
  EXPECT_EQ(made[0].name(), "read");
  EXPECT_EQ(
      Shown(made[1]),
      R"({"name":"files__read","description":"All files.\nReads one.","parameters_json":"{\"type\":\"object\"}"})");
  EXPECT_EQ(Shown(made[2]), R"({"name":"files__list"})");
  EXPECT_EQ(read.answer.names.Of("files__read"), (ToolNames::Name{.space = "files", .name = "read"}));
  EXPECT_EQ(read.answer.names.Of("read"), (ToolNames::Name{.space = "", .name = "read"}));
  EXPECT_EQ(read.answer.names.Of("other__one"), (ToolNames::Name{.space = "", .name = "other__one"}));
  const auto chosen = [&](const std::string& choice) {
    return Shown(ReadResponse(ResponsesWith(tools + ", \"tool_choice\": " + choice)).request.tool_choice());
  };
  EXPECT_EQ(chosen(R"({"type": "function", "namespace": "files", "name": "list"})"),
            R"({"mode":"MODE_REQUIRED","names":["files__list"]})");
  // Two functions of one name in the model can't be told apart; the same one twice can.
  const std::string flat =
      R"({"type": "function", "name": "files__read"}, {"type": "namespace", "name": "files", "tools": [)";
  EXPECT_THAT(
      RefusedResponse(ResponsesWith("\"tools\": [" + flat + R"({"type": "function", "name": "read"}]}])")),
      HasSubstr("tools[1].tools[0].name: another tool is called so"));
  EXPECT_THAT(RefusedResponse(ResponsesWith("\"tools\": [" + flat +
                                            R"({"type": "namespace", "name": "b", "tools": []}]}])")),
              HasSubstr("tools[1].tools[0].type: \"namespace\" does not run here"));
  EXPECT_THAT(RefusedResponse(ResponsesWith(R"("tools": [{"type": "namespace", "name": "b"}])")),
              HasSubstr("tools[0].tools: absent"));
  EXPECT_THAT(RefusedResponse(ResponsesWith(R"("tools": [{"type": "custom", "name": "apply_patch"}])")),
              HasSubstr("tools[0].type: \"custom\" takes a text that is no JSON"));
}

// A conversation goes on whatever another service's tools have done in it.
TEST(ResponsesRequestTest, ItemsOfOtherToolsAreReadOrLeftOut) {
  const auto conversation = [](const std::string& items) {
    return Shown(ReadResponse(R"({"input": [)" + items + "]}").request.conversation());
  };
  EXPECT_EQ(
      conversation(
          R"({"type": "function_call", "call_id": "c", "namespace": "files", "name": "read", "arguments": "{}"},
                            {"type": "function_call_output", "call_id": "c", "output": "42"})"),
      R"({"messages":[{"role":"assistant","tool_calls":[{"id":"c","name":"files__read","arguments_json":"{}"}]},)"
      R"({"role":"tool","content":"42","tool_call_id":"c"}]})");
  EXPECT_EQ(
      conversation(
          R"({"type": "custom_tool_call", "id": "i", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
                            {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "done"}]})"),
      R"({"messages":[{"role":"assistant","tool_calls":[{"id":"c","name":"apply_patch","arguments_json":"{\"input\":\"*** Begin\"}"}]},)"
      R"({"role":"tool","content":"done","tool_call_id":"c"}]})");
  EXPECT_EQ(
      conversation(R"({"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
                            {"type": "local_shell_call_output", "call_id": "c", "output": {"stdout": "a"}},
                            {"type": "shell_call_output", "call_id": "d", "output": [{"stdout": "b"}, {"type": "input_text", "text": "t"}]})"),
      R"({"messages":[{"role":"assistant","tool_calls":[{"id":"c","name":"local_shell","arguments_json":"{\"action\":{\"command\":[\"ls\"]}}"}]},)"
      R"({"role":"tool","content":"{\"stdout\":\"a\"}","tool_call_id":"c"},{"role":"tool","content":"{\"stdout\":\"b\"}t","tool_call_id":"d"}]})");
  EXPECT_EQ(
      conversation(
          R"({"role": "user", "content": "q"}, {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}},
                            {"type": "compaction", "encrypted_content": "e"}, {"role": "assistant", "content": "Yes."})"),
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"[web_search_call: left out, this model reads text alone])"
      R"([compaction: left out, this model reads text alone]Yes."}]})");
}

TEST(ResponsesRequestTest, ResultsOfOtherToolsHaveTheirCallAndNoPictures) {
  const auto contents = [](const std::string& items) {
    const ResponsesRequest read = ReadResponse(R"({"input": [)" + items + "]}");
    std::string all;
    for (const v1::Message& message : read.request.conversation().messages())
      all += message.role() + " " + message.tool_call_id() + ": " + message.content() + "|";
    return all;
  };
  EXPECT_EQ(
      contents(
          R"({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "data:x"}})"),
      "tool c: [computer_screenshot: left out, this model reads text alone]|");
  EXPECT_EQ(contents(R"({"type": "local_shell_call_output", "id": "c", "output": "done"})"), "tool c: done|");
  EXPECT_EQ(contents(R"({"type": "tool_search_output", "call_id": "c", "output": "found"})"),
            "tool c: found|");
  // An item of another service's own does not begin a conversation.
  EXPECT_EQ(
      contents(R"({"type": "compaction", "encrypted_content": "e"}, {"role": "user", "content": "hi"})"),
      "user : hi|");
}

TEST(ResponsesRequestTest, HowItIsAnswered) {
  const ResponsesRequest read = ReadResponse(ResponsesWith(
      R"("max_output_tokens": 5, "temperature": 0.5, "top_p": 0.25, "prompt_cache_key": "s", "stream": true, "truncation": "auto",
         "reasoning": {"effort": "low", "summary": "auto"}, "store": false, "include": ["reasoning.encrypted_content"],
         "metadata": {"a": "b"}, "user": "u", "service_tier": "auto", "background": false, "previous_response_id": null, "beam": 1,
         "text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"z": 1, "a": 2}}, "verbosity": "low"})"));
  EXPECT_EQ(read.request.stop().max_tokens(), 5u);
  EXPECT_EQ(Shown(read.request.sampling()), R"({"temperature":0.5,"top_p":0.25})");
  EXPECT_EQ(read.request.options().session_id(), "s");
  EXPECT_EQ(read.request.overflow().mode(), v1::Overflow::MODE_DROP_OLDEST);
  EXPECT_EQ(Shown(read.request.thinking()), R"({"enabled":true,"effort":"low"})");
  EXPECT_EQ(read.request.constraint().json_schema(), R"({"z":1,"a":2})");
  EXPECT_TRUE(read.answer.stream);
  EXPECT_TRUE(read.answer.summary);
  EXPECT_TRUE(read.answer.encrypted);
  const ResponsesRequest plain = ReadResponse(ResponsesWith(
      R"("reasoning": {"effort": "low", "summary": null, "generate_summary": "none"}, "include": ["file_search_call.results"])"));
  EXPECT_FALSE(plain.answer.summary);
  EXPECT_FALSE(plain.answer.encrypted);
  EXPECT_THAT(RefusedResponse(ResponsesWith(R"("reasoning": {"summary": "short"})")),
              HasSubstr("reasoning.summary: not one of auto"));
  EXPECT_THAT(read.answer.ignored, ElementsAre("beam"));
  EXPECT_EQ(read.answer.echo["max_output_tokens"], 5);
  EXPECT_EQ(read.answer.echo["metadata"]["a"], "b");
  EXPECT_EQ(read.answer.echo["store"], false);
  EXPECT_FALSE(
      ReadResponse(ResponsesWith(R"("reasoning": {"effort": "none"})")).request.thinking().enabled());
  EXPECT_TRUE(ReadResponse(ResponsesWith(R"("text": {"format": {"type": "json_object"}})"))
                  .request.constraint()
                  .json_object());
  EXPECT_FALSE(
      ReadResponse(ResponsesWith(R"("text": {"format": {"type": "text"}})")).request.has_constraint());
}

TEST(ResponsesRequestTest, WhatNeedsAMemoryIsRefused) {
  EXPECT_THAT(RefusedResponse(ResponsesWith(R"("store": true)")), HasSubstr("store: no answer is kept here"));
  for (const char* const name : {"previous_response_id", "conversation"}) {
    EXPECT_THAT(RefusedResponse(ResponsesWith("\"" + std::string(name) + "\": \"x\"")),
                HasSubstr("send the whole conversation as input"));
  }
  for (const char* const more :
       {R"("background": true)", R"("prompt": {"id": "p"})", R"("context_management": [{}])"}) {
    EXPECT_THAT(RefusedResponse(ResponsesWith(more)), HasSubstr("not served here"));
  }
  EXPECT_THAT(RefusedResponse(R"({"input": [{"type": "item_reference", "id": "x"}]})"),
              HasSubstr("input[0].type: nothing is kept"));
}

TEST(ResponsesRequestTest, UnknownMembersOfNestedObjectsAreNamedAndItemsAreBounded) {
  const auto read = ReadResponses(Json::parse(
      R"({"input": [{"type": "message", "id": "m", "status": "completed", "role": "user", "phase": "p",
                     "content": [{"type": "input_text", "text": "hi", "annotations": [], "x": 1}]},
                    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}],
          "reasoning": {"effort": "low", "summary": "auto", "z": 1}, "text": {"verbosity": "low", "y": 1}})"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->answer.ignored,
              testing::ElementsAre("input[].content[].x", "input[].phase", "reasoning.z", "text.y"));
  Json body = {{"input", Json::array()}};
  for (size_t i = 0; i <= kMaxMessages; ++i) body["input"].push_back({{"role", "user"}, {"content", "x"}});
  EXPECT_THAT(std::string(ReadResponses(body).status().message()), testing::StartsWith("input: 20001 items"));
}

TEST(ResponsesRequestTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "not a JSON object"},
      {R"({})", "input: absent"},
      {R"({"input": 7})", "input: neither"},
      {R"({"input": ["hi"]})", "input[0]: not a JSON object"},
      {R"({"input": [{"content": "hi"}]})", "input[0].role: absent"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})",
       "input[0].content[0].type: \"input_image\" is not served"},
      {R"({"input": [{"type": "mesage", "id": "x"}]})", "\"mesage\" are not served"},
      {R"({"input": [{"type": "shell_call_output", "output": []}]})", "input[0].call_id: absent"},
      {R"({"input": [{"type": "function_call", "name": "f"}]})", "input[0].call_id: absent"},
      {R"({"input": [{"type": "function_call_output", "output": "f"}]})", "input[0].call_id: absent"},
      {R"({"input": "x", "text": {"format": {"type": "xml"}}})", "text.format.type: "},
      {R"({"input": "x", "text": {"format": {"type": "json_schema"}}})", "text.format.schema: absent"},
      {R"({"input": "x", "truncation": "some"})", "truncation: "},
      {R"({"input": "x", "include": ["message.output_text.logprobs"]})", "include: "},
      {R"({"input": "x", "top_logprobs": 3})", "top_logprobs: "},
      {R"({"input": "x", "max_output_tokens": -1})", "max_output_tokens: must be in"},
      {R"({"input": "x", "reasoning": "low"})", "reasoning: not a JSON object"}};
  for (const auto& [body, words] : cases) EXPECT_THAT(RefusedResponse(body), HasSubstr(words));
}

}  // namespace
}  // namespace baton::gateway
