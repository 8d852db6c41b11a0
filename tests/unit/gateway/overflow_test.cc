#include "gateway/mapping/overflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/mapping/anthropic_request.h"
#include "gateway/mapping/openai_request.h"
#include "gateway/mapping/responses_request.h"
#include "tests/unit/gateway/shown.h"

namespace baton::gateway {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<v1::Overflow> OverflowOf(const std::string& member) {
  const Json json = Json::parse("{" + member + "}");
  auto body = JsonObject::Of(json, "");
  v1::Overflow overflow;
  const absl::Status read = ReadOverflow(*body, v1::Overflow::MODE_CLAMP_OUTPUT, &overflow);
  if (!read.ok()) return read;
  EXPECT_THAT(body->Ignored(), testing::IsEmpty());
  return overflow;
}

TEST(OverflowMemberTest, AWordOrAnObject) {
  const std::pair<const char*, const char*> cases[] = {
      {"", R"({"mode":"MODE_CLAMP_OUTPUT"})"},
      {R"("overflow": null)", R"({"mode":"MODE_CLAMP_OUTPUT"})"},
      {R"("overflow": "refuse")", R"({"mode":"MODE_REFUSE"})"},
      {R"("overflow": "clamp_output")", R"({"mode":"MODE_CLAMP_OUTPUT"})"},
      {R"("overflow": "drop_oldest")", R"({"mode":"MODE_DROP_OLDEST","clamp_output":true})"},
      {R"("overflow": {"mode": "drop_middle", "keep": 0.5, "keep_first_tokens": 9, "window_tokens": 70})",
       R"({"mode":"MODE_DROP_MIDDLE","keep":0.5,"keep_first_tokens":9,"clamp_output":true,"window_tokens":70})"},
      {R"("overflow": {"mode": "clear_tool_results", "keep_tool_results": 1})",
       R"({"mode":"MODE_CLEAR_TOOL_RESULTS","keep_tool_results":1,"clamp_output":true})"},
  };
  for (const auto& [member, made] : cases) {
    const auto overflow = OverflowOf(member);
    ASSERT_TRUE(overflow.ok()) << overflow.status();
    EXPECT_EQ(Shown(*overflow), made);
  }
  for (const char* const wrong :
       {R"("overflow": "summarise")", R"("overflow": "DROP_OLDEST")", R"("overflow": "unspecified")",
        R"("overflow": {})", R"("overflow": 7)", R"("overflow": {"mode": "drop_oldest", "keep": "half"})",
        R"("overflow": {"mode": "drop_oldest", "window_tokens": 0})"}) {
    EXPECT_THAT(std::string(OverflowOf(wrong).status().message()), HasSubstr("overflow")) << wrong;
  }
}

TEST(OverflowMemberTest, EveryEndpointHasIt) {
  const Json member = {{"overflow", "drop_oldest"}};
  const auto with = [&](const char* text) {
    Json body = Json::parse(text);
    body.update(member);
    return body;
  };
  constexpr auto kDrops = v1::Overflow::MODE_DROP_OLDEST;
  constexpr const char* kMessages = R"({"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]})";
  EXPECT_EQ(ReadOpenAiChat(with(kMessages))->request.overflow().mode(), kDrops);
  EXPECT_EQ(ReadAnthropicMessages(with(kMessages))->request.overflow().mode(), kDrops);
  EXPECT_EQ(ReadResponses(with(R"({"input": "hi"})"))->request.overflow().mode(), kDrops);
  const auto several = ReadOpenAiCompletion(with(R"({"prompt": ["a", "b"]})"));
  for (const v1::GenerateRequest& one : several->requests) {
    EXPECT_EQ(one.overflow().mode(), kDrops);
  }
  EXPECT_EQ(ReadOpenAiCompletion(Json::parse(R"({"prompt": "a"})"))->requests[0].overflow().mode(),
            v1::Overflow::MODE_CLAMP_OUTPUT);
}

TEST(OverflowMemberTest, APromptThatIsEchoedIsNotCut) {
  EXPECT_THAT(std::string(ReadOpenAiCompletion(
                              Json::parse(R"({"prompt": "a", "echo": true, "overflow": "drop_oldest"})"))
                              .status()
                              .message()),
              HasSubstr("overflow: with echo"));
  EXPECT_TRUE(ReadOpenAiCompletion(Json::parse(R"({"prompt": "a", "echo": true})")).ok());
}

absl::StatusOr<AnthropicMessages> WithEdits(const std::string& edits, const std::string& more = "") {
  return ReadAnthropicMessages(Json::parse(
      R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "t1", "signature": "s"}, {"type": "text", "text": "b"}]},
          {"role": "user", "content": "c"},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "t2", "signature": "s"}, {"type": "text", "text": "d"}]},
          {"role": "user", "content": "e"}], "context_management": {"edits": [)" +
      edits + "]}" + more + "}"));
}

TEST(ContextEditsTest, ResultsOfToolsAreClearedBeyondATrigger) {
  const auto plain = WithEdits(R"({"type": "clear_tool_uses_20250919"})");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(Shown(plain->request.overflow()),
            R"({"mode":"MODE_CLEAR_TOOL_RESULTS","clamp_output":true,"window_tokens":100000})");
  const auto given = WithEdits(
      R"({"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 300}, "keep": {"type": "tool_uses", "value": 1},
          "clear_at_least": {"type": "input_tokens", "value": 9}, "exclude_tools": [], "clear_tool_inputs": false})");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(
      Shown(given->request.overflow()),
      R"({"mode":"MODE_CLEAR_TOOL_RESULTS","keep_tool_results":1,"clamp_output":true,"window_tokens":300})");
  EXPECT_THAT(given->ignored, testing::IsEmpty());
}

TEST(ContextEditsTest, ThinkingIsTakenOutOfOlderTurns) {
  const auto thinking = [](const std::string& edit) {
    const auto read = WithEdits(edit);
    EXPECT_TRUE(read.ok()) << read.status();
    std::string left;
    for (const v1::Message& message : read->request.conversation().messages())
      left += message.reasoning_content();
    EXPECT_EQ(read->request.overflow().mode(), v1::Overflow::MODE_CLAMP_OUTPUT);
    return left;
  };
  EXPECT_EQ(thinking(R"({"type": "clear_thinking_20251015", "keep": "all"})"), "t1t2");
  EXPECT_EQ(thinking(R"({"type": "clear_thinking_20251015"})"), "t2");
  EXPECT_EQ(
      thinking(R"({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}})"),
      "t1t2");
}

TEST(ContextEditsTest, OthersAreIgnoredAndNamed) {
  for (const char* const edit :
       {R"({"type": "compact_20260112"})", R"({"type": "clear_tool_uses_20250919", "exclude_tools": ["f"]})",
        R"({"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 3}})",
        R"({"type": 7})"}) {
    const auto read = WithEdits(edit);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(Shown(read->request.overflow()), R"({"mode":"MODE_CLAMP_OUTPUT"})") << edit;
    EXPECT_THAT(read->ignored, testing::Contains("context_management.edits[].type")) << edit;
  }
  const auto inputs = WithEdits(R"({"type": "clear_tool_uses_20250919", "clear_tool_inputs": true})");
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->request.overflow().mode(), v1::Overflow::MODE_CLEAR_TOOL_RESULTS);
  EXPECT_THAT(inputs->ignored, testing::ElementsAre("context_management.edits[].clear_tool_inputs"));
}

TEST(ContextEditsTest, MalformedOnesAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(7)", "context_management.edits[0]: not a JSON object"},
      {R"({"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 0}})",
       "trigger: 0 tokens"},
      {R"({"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses"}})", "keep.value: absent"},
      {R"({"type": "clear_thinking_20251015", "keep": "some"})", "keep: not a JSON object"},
  };
  for (const auto& [edit, words] : cases) {
    EXPECT_THAT(std::string(WithEdits(edit).status().message()), HasSubstr(words));
  }
  EXPECT_THAT(std::string(WithEdits(R"({"type": "clear_tool_uses_20250919"})", R"(, "overflow": "refuse")")
                              .status()
                              .message()),
              HasSubstr("overflow: another member"));
}

// Counting says how long the prompt is, however long.
TEST(ContextEditsTest, PromptsAreCountedAsTheyAreCut) {
  const auto count = ReadAnthropicCount(Json::parse(
      R"({"messages": [{"role": "user", "content": "a"}], "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}})"));
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(Shown(count->chat().overflow()),
            R"({"mode":"MODE_CLEAR_TOOL_RESULTS","clamp_output":true,"window_tokens":100000})");
  EXPECT_EQ(Shown(ReadAnthropicCount(Json::parse(R"({"messages": [{"role": "user", "content": "a"}]})"))
                      ->chat()
                      .overflow()),
            R"({"mode":"MODE_CLAMP_OUTPUT"})");
}

}  // namespace
}  // namespace baton::gateway
