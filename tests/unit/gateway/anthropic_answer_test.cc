#include "gateway/mapping/anthropic_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/mapping/signature.h"
#include "gateway/mapping/usage.h"
#include "tests/unit/gateway/events.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;

struct AnthropicBoth {
  std::vector<std::string> events;  // "name data"
  Json whole;
};

AnthropicBoth WriteAnthropic(const std::vector<v1::GenerateResponse>& stream,
                             const AnthropicAnswer& wanted = {}) {
  AnthropicEvents events(wanted);
  protocol::AnswerFold answer;
  std::string bytes;
  for (const v1::GenerateResponse& event : stream) {
    bytes += events.Add(event);
    answer.Add(event);
  }
  const v1::Usage usage = UsageOf(std::nullopt, answer.choices());
  bytes += events.End(usage);
  AnthropicBoth both{.whole = AnthropicWhole(answer, usage, wanted)};
  for (size_t at = 0; at < bytes.size();) {
    const size_t line = bytes.find('\n', at), end = bytes.find("\n\n", at);
    const std::string name = bytes.substr(at, line - at), data = bytes.substr(line + 1, end - line - 1);
    EXPECT_EQ(name, "event: " + Json::parse(data.substr(6))["type"].get<std::string>());
    both.events.push_back(data.substr(6));
    at = end + 2;
  }
  return both;
}

TEST(AnthropicAnswerTest, PartsAreBlocksInOrder) {
  EXPECT_THAT(
      WriteAnthropic(AnswerInParts()).events,
      ElementsAre(
          R"({"type":"message_start","message":{"id":"msg_r1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":0}}})",
          R"({"type":"ping"})",
          R"({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"baton"}})",
          R"({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}})",
          R"({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"baton"}})",
          R"({"type":"content_block_stop","index":0})",
          R"({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})",
          R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me see."}})",
          R"({"type":"content_block_stop","index":1})",
          R"({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_2","name":"f","input":{}}})",
          R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}})",
          R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}})",
          R"({"type":"content_block_stop","index":2})",
          R"({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":5,"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":0},"output_tokens":3}})",
          R"({"type":"message_stop"})"));
}

TEST(AnthropicAnswerTest, InOnePiece) {
  const Json whole = WriteAnthropic(AnswerInParts()).whole;
  EXPECT_EQ(
      whole["content"].dump(),
      R"([{"type":"thinking","thinking":"hm","signature":"baton"},{"type":"text","text":"Let me see."},)"
      R"({"type":"tool_use","id":"call_2","name":"f","input":{"x":1}}])");
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_TRUE(whole.contains("stop_sequence"));
  EXPECT_EQ(whole["usage"]["input_tokens"], 5) << "without what was cached or written";
}

TEST(AnthropicAnswerTest, HiddenThinkingIsInItsSignature) {
  const AnthropicBoth both = WriteAnthropic(AnswerInParts(), {.hide_thinking = true});
  EXPECT_EQ(both.whole["content"][0]["thinking"], "");
  EXPECT_EQ(ThinkingIn(both.whole["content"][0]["signature"].get<std::string>()), "hm");
  for (const std::string& event : both.events)
    EXPECT_EQ(event.find("thinking_delta"), std::string::npos) << event;
  const Json end = Json::parse(both.events[3]);
  EXPECT_EQ(end["delta"]["type"], "signature_delta");
  EXPECT_EQ(ThinkingIn(end["delta"]["signature"].get<std::string>()), "hm");
  EXPECT_EQ(both.events.size() + 1, WriteAnthropic(AnswerInParts()).events.size());
}

TEST(AnthropicAnswerTest, ATextWithoutPartsIsOneBlock) {
  const AnthropicBoth both = WriteAnthropic(
      {StartedEvent(), TextEvent("a"), TextEvent("b"), FinishedEvent(v1::FINISH_REASON_STOP_TOKEN)});
  EXPECT_EQ(both.whole["content"].dump(), R"([{"type":"text","text":"ab"}])");
  EXPECT_EQ(both.events.size(), 8u);
}

TEST(AnthropicAnswerTest, ReasonsOfTheEnd) {
  v1::GenerateResponse stopped = FinishedEvent(v1::FINISH_REASON_STOP_STRING);
  stopped.mutable_finished()->set_stop_match("END");
  const Json whole = WriteAnthropic({StartedEvent(), TextEvent("a"), stopped}).whole;
  EXPECT_EQ(whole["stop_reason"], "stop_sequence");
  EXPECT_EQ(whole["stop_sequence"], "END");
  const std::pair<v1::FinishReason, const char*> reasons[] = {
      {v1::FINISH_REASON_STOP_TOKEN, "end_turn"},
      {v1::FINISH_REASON_LENGTH, "max_tokens"},
      {v1::FINISH_REASON_CONTENT_FILTER, "refusal"},
      {v1::FINISH_REASON_CONTEXT_FULL, "model_context_window_exceeded"}};
  for (const auto& [reason, word] : reasons) {
    EXPECT_EQ(WriteAnthropic({StartedEvent(), TextEvent("a"), FinishedEvent(reason)}).whole["stop_reason"],
              word);
  }
}

TEST(AnthropicAnswerTest, ACallThatWasCutIsText) {
  const Json whole =
      WriteAnthropic({StartedEvent(), PartEventOf(0, v1::PartStart::KIND_TOOL_CALL, "{\"x\":", false, "f"),
                      FinishedEvent(v1::FINISH_REASON_LENGTH)})
          .whole;
  EXPECT_EQ(whole["content"].dump(), R"([{"type":"text","text":"{\"x\":"}])");
}

TEST(AnthropicAnswerTest, WarningsStandAtTheEnd) {
  v1::GenerateResponse end = FinishedEvent(v1::FINISH_REASON_STOP_TOKEN);
  v1::Warning& warning = *end.mutable_finished()->add_warnings();
  warning.set_kind(v1::Warning::KIND_INCOMPLETE_CALL);
  warning.set_count(2);
  warning.set_message("cut");
  const AnthropicBoth both = WriteAnthropic({StartedEvent(), TextEvent("a"), end});
  const std::string wanted = R"([{"kind":"incomplete_call","count":2,"message":"cut"}])";
  EXPECT_EQ(both.whole["warnings"].dump(), wanted);
  EXPECT_EQ(Json::parse(both.events[both.events.size() - 2])["warnings"].dump(), wanted);
  // A newer router's.
  warning.set_kind(static_cast<v1::Warning::Kind>(99));
  EXPECT_EQ(WriteAnthropic({StartedEvent(), TextEvent("a"), end}).whole["warnings"][0]["kind"], "other");
}

}  // namespace
}  // namespace baton::gateway
