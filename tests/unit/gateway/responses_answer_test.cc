#include "gateway/mapping/responses_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/mapping/usage.h"
#include "tests/unit/gateway/events.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;

struct ResponsesBoth {
  std::vector<Json> events;
  Json whole;
};

// The data of a stream's events, whose names are their types, and whose numbers go up by one.
std::vector<Json> ResponsesData(const std::string& bytes) {
  std::vector<Json> events;
  for (size_t at = 0; at < bytes.size();) {
    const size_t line = bytes.find('\n', at), end = bytes.find("\n\n", at);
    const std::string name = bytes.substr(at, line - at);
    events.push_back(Json::parse(bytes.substr(line + 7, end - line - 7)));
    EXPECT_EQ(name, "event: " + events.back()["type"].get<std::string>());
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    at = end + 2;
  }
  return events;
}

const Json kEcho = {{"instructions", "i"}, {"store", false}};
const ResponsesAnswer kPlain = [] {
  ToolNames names;
  names.Add({.space = "files", .name = "read"});
  names.Add({.space = "", .name = "f"});
  return ResponsesAnswer{.echo = kEcho, .names = names};
}();

ResponsesBoth WriteResponses(const std::vector<v1::GenerateResponse>& stream,
                             const ResponsesAnswer& wanted = kPlain) {
  ResponsesEvents events(77, wanted);
  protocol::AnswerFold answer;
  std::string bytes;
  for (const v1::GenerateResponse& event : stream) {
    bytes += events.Add(event);
    answer.Add(event);
  }
  const v1::Usage usage = UsageOf(std::nullopt, answer.choices());
  bytes += events.End(usage);
  ResponsesBoth both{.events = ResponsesData(bytes), .whole = ResponsesWhole(answer, usage, 77, wanted)};
  // The last event of a stream is the answer in one piece.
  EXPECT_EQ(both.events.back()["response"], both.whole);
  return both;
}

std::vector<std::string> Types(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    std::string type = event["type"];
    if (event.contains("output_index")) type += " " + event["output_index"].dump();
    types.push_back(type);
  }
  return types;
}

TEST(ResponsesAnswerTest, PartsAreItemsInOrder) {
  const ResponsesBoth both = WriteResponses(AnswerInParts());
  EXPECT_THAT(
      Types(both.events),
      ElementsAre(
          "response.created", "response.in_progress", "response.output_item.added 0",
          "response.content_part.added 0", "response.reasoning_text.delta 0",
          "response.reasoning_text.done 0", "response.content_part.done 0", "response.output_item.done 0",
          "response.output_item.added 1", "response.content_part.added 1", "response.output_text.delta 1",
          "response.output_text.done 1", "response.content_part.done 1", "response.output_item.done 1",
          "response.output_item.added 2", "response.function_call_arguments.delta 2",
          "response.function_call_arguments.delta 2", "response.function_call_arguments.done 2",
          "response.output_item.done 2", "response.completed"));
  EXPECT_EQ(both.events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(both.events[0]["response"]["id"], "resp_r1");
  EXPECT_EQ(
      both.events[8].dump(),
      R"({"type":"response.output_item.added","sequence_number":8,"output_index":1,"item":{"type":"message","id":"msg_r1_1","role":"assistant","status":"in_progress","content":[]}})");
  EXPECT_EQ(
      both.events[9].dump(),
      R"({"type":"response.content_part.added","sequence_number":9,"output_index":1,"item_id":"msg_r1_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}})");
  EXPECT_EQ(
      both.events[10].dump(),
      R"({"type":"response.output_text.delta","sequence_number":10,"output_index":1,"item_id":"msg_r1_1","content_index":0,"delta":"Let me see.","logprobs":[]})");
  EXPECT_EQ(
      both.events[14].dump(),
      R"({"type":"response.output_item.added","sequence_number":14,"output_index":2,"item":{"type":"function_call","id":"fc_r1_2","call_id":"call_2","name":"f","arguments":"","status":"in_progress"}})");
  EXPECT_EQ(
      both.events[17].dump(),
      R"({"type":"response.function_call_arguments.done","sequence_number":17,"output_index":2,"item_id":"fc_r1_2","name":"f","arguments":"{\"x\":1}"})");
}

TEST(ResponsesAnswerTest, InOnePiece) {
  const Json whole = WriteResponses(AnswerInParts()).whole;
  EXPECT_EQ(
      whole["output"].dump(),
      R"([{"type":"reasoning","id":"rs_r1_0","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"status":"completed"},)"
      R"({"type":"message","id":"msg_r1_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Let me see.","annotations":[],"logprobs":[]}]},)"
      R"({"type":"function_call","id":"fc_r1_2","call_id":"call_2","name":"f","arguments":"{\"x\":1}","status":"completed"}])");
  EXPECT_EQ(
      whole["usage"].dump(),
      R"({"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":1},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":13})");
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["incomplete_details"], nullptr);
  EXPECT_EQ(whole["object"], "response");
  EXPECT_EQ(whole["created_at"], 77);
  EXPECT_EQ(whole["instructions"], "i");
}

// As clients ask that keep thinking by its summary and its encrypted form alone.
TEST(ResponsesAnswerTest, ThinkingIsItsSummaryIfOneIsAskedFor) {
  const ResponsesBoth both = WriteResponses(AnswerInParts(), {.summary = true, .encrypted = true});
  const std::vector<std::string> types = Types(both.events);
  EXPECT_THAT(std::vector(types.begin() + 2, types.begin() + 8),
              ElementsAre("response.output_item.added 0", "response.reasoning_summary_part.added 0",
                          "response.reasoning_summary_text.delta 0", "response.reasoning_summary_text.done 0",
                          "response.reasoning_summary_part.done 0", "response.output_item.done 0"));
  EXPECT_EQ(both.events[2]["item"].dump(),
            R"({"type":"reasoning","id":"rs_r1_0","summary":[],"content":[],"status":"in_progress"})");
  EXPECT_EQ(
      both.events[4].dump(),
      R"({"type":"response.reasoning_summary_text.delta","sequence_number":4,"output_index":0,"item_id":"rs_r1_0","summary_index":0,"delta":"hm"})");
  EXPECT_EQ(
      both.events[6].dump(),
      R"({"type":"response.reasoning_summary_part.done","sequence_number":6,"output_index":0,"item_id":"rs_r1_0","summary_index":0,"part":{"type":"summary_text","text":"hm"}})");
  const std::string item =
      R"({"type":"reasoning","id":"rs_r1_0","summary":[{"type":"summary_text","text":"hm"}],"content":[],"status":"completed","encrypted_content":"baton.aG0="})";
  EXPECT_EQ(both.events[7]["item"].dump(), item);
  EXPECT_EQ(both.whole["output"][0].dump(), item);
}

TEST(ResponsesAnswerTest, ATextWithoutPartsIsOneMessage) {
  const ResponsesBoth both = WriteResponses(
      {StartedEvent(), TextEvent("a"), TextEvent("b"), FinishedEvent(v1::FINISH_REASON_STOP_TOKEN)});
  ASSERT_EQ(both.whole["output"].size(), 1u);
  EXPECT_EQ(both.whole["output"][0]["content"][0]["text"], "ab");
  EXPECT_EQ(both.whole["output"][0]["status"], "completed");
}

TEST(ResponsesAnswerTest, AnswersThatAreCutSayWhy) {
  const std::pair<v1::FinishReason, const char*> reasons[] = {
      {v1::FINISH_REASON_LENGTH, "max_output_tokens"},
      {v1::FINISH_REASON_CONTEXT_FULL, "max_output_tokens"},
      {v1::FINISH_REASON_CONTENT_FILTER, "content_filter"}};
  for (const auto& [reason, word] : reasons) {
    const ResponsesBoth both = WriteResponses({StartedEvent(), TextEvent("a"), FinishedEvent(reason)});
    EXPECT_EQ(both.events.back()["type"], "response.incomplete");
    EXPECT_EQ(both.whole["status"], "incomplete");
    EXPECT_EQ(both.whole["incomplete_details"]["reason"], word);
    EXPECT_EQ(both.whole["output"][0]["status"], "incomplete");
  }
  const ResponsesBoth call =
      WriteResponses({StartedEvent(), PartEventOf(0, v1::PartStart::KIND_TOOL_CALL, "{\"x\":", false, "f"),
                      FinishedEvent(v1::FINISH_REASON_LENGTH)});
  EXPECT_EQ(call.whole["output"][0]["status"], "incomplete");
  EXPECT_EQ(call.whole["output"][0]["arguments"], "{\"x\":");
}

// The model knows one name, the client two.
TEST(ResponsesAnswerTest, ACallOfAFunctionInANamespaceHasTheClientsNames) {
  const ResponsesBoth both = WriteResponses(
      {StartedEvent(), PartEventOf(0, v1::PartStart::KIND_TOOL_CALL, "{}", true, "files__read"),
       FinishedEvent(v1::FINISH_REASON_TOOL_CALLS)});
  for (const Json& item : {both.events[2]["item"], both.whole["output"][0]}) {
    EXPECT_EQ(item["name"], "read");
    EXPECT_EQ(item["namespace"], "files");
  }
  EXPECT_EQ(both.events[4]["type"], "response.function_call_arguments.done");
  EXPECT_EQ(both.events[4]["name"], "read");
  const ResponsesBoth plain =
      WriteResponses({StartedEvent(), PartEventOf(0, v1::PartStart::KIND_TOOL_CALL, "{}", true, "a__b"),
                      FinishedEvent(v1::FINISH_REASON_TOOL_CALLS)});
  EXPECT_EQ(plain.whole["output"][0]["name"], "a__b");
  EXPECT_FALSE(plain.whole["output"][0].contains("namespace"));
}

TEST(ResponsesAnswerTest, AFailureHasWhatThereWas) {
  ResponsesEvents events(77, kPlain);
  std::string bytes = events.Add(StartedEvent());
  bytes += events.Add(PartEventOf(0, v1::PartStart::KIND_TEXT, "a", true));
  bytes += events.Fail(absl::UnavailableError("the worker is lost"));
  const Json last = ResponsesData(bytes).back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"].dump(), R"({"code":"server_error","message":"the worker is lost"})");
  EXPECT_EQ(last["response"]["output"][0]["content"][0]["text"], "a");
  ResponsesEvents nothing(77, kPlain);
  const Json error = ResponsesData(nothing.Fail(absl::ResourceExhaustedError("too many"))).back();
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["code"], "rate_limit_exceeded");
}

// However a stream is cut into deltas, the events say the same.
TEST(ResponsesAnswerTest, DeltasMayBeCutAnywhere) {
  std::vector<v1::GenerateResponse> finer;
  for (const v1::GenerateResponse& event : AnswerInParts()) {
    if (!event.has_delta()) {
      finer.push_back(event);
      continue;
    }
    for (const v1::PartEvent& part : event.delta().parts()) {
      for (size_t i = 0; i < std::max<size_t>(1, part.text().size() + part.arguments_json().size()); ++i) {
        v1::GenerateResponse one;
        v1::PartEvent& made = *one.mutable_delta()->add_parts() = part;
        if (!part.text().empty()) made.set_text(part.text().substr(i, 1));
        if (!part.arguments_json().empty()) made.set_arguments_json(part.arguments_json().substr(i, 1));
        finer.push_back(one);
      }
    }
  }
  EXPECT_EQ(WriteResponses(finer).whole, WriteResponses(AnswerInParts()).whole);
}

TEST(ResponsesAnswerTest, WarningsStandInTheResponse) {
  v1::GenerateResponse end = FinishedEvent(v1::FINISH_REASON_STOP_TOKEN);
  v1::Warning& warning = *end.mutable_finished()->add_warnings();
  warning.set_kind(v1::Warning::KIND_SETTING);
  warning.set_count(1);
  warning.set_message("top_p: without effect");
  const ResponsesBoth both = WriteResponses({StartedEvent(), TextEvent("a"), end});
  const std::string wanted = R"([{"kind":"setting","count":1,"message":"top_p: without effect"}])";
  EXPECT_EQ(both.whole["warnings"].dump(), wanted);
  EXPECT_EQ(both.events.back()["response"]["warnings"].dump(), wanted);
}

}  // namespace
}  // namespace baton::gateway
