#include "gateway/mapping/openai_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/mapping/usage.h"
#include "tests/unit/gateway/events.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

// The events of a stream, as a client of server-sent events reads them.
std::vector<std::string> OpenAiData(const std::string& stream) {
  std::vector<std::string> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an event that does not end";
    const std::string event = stream.substr(at, end - at);
    EXPECT_EQ(event.find("data: "), 0u) << event;
    EXPECT_EQ(event.find('\n'), std::string::npos) << event;
    events.push_back(event.substr(6));
    at = end + 2;
  }
  return events;
}

struct OpenAiBoth {
  std::vector<std::string> chunks;
  Json whole;
};

OpenAiBoth WriteOpenAi(OpenAiKind kind, const std::vector<v1::GenerateResponse>& events,
                       const OpenAiAnswer& wanted = {}) {
  OpenAiChunks chunks(kind, 77, wanted);
  protocol::AnswerFold answer;
  std::string stream;
  for (const v1::GenerateResponse& event : events) {
    stream += chunks.Add(event);
    answer.Add(event);
  }
  EXPECT_TRUE(answer.CheckWhole().ok());
  const v1::Usage used = UsageOf(std::nullopt, answer.choices());
  stream += chunks.End(used);
  return {OpenAiData(stream), OpenAiWhole(kind, answer, used, 77, wanted)};
}

// The chunks' choices; the other fields are checked once, elsewhere.
std::vector<std::string> Choices(const std::vector<std::string>& chunks) {
  std::vector<std::string> choices;
  for (const std::string& chunk : chunks) {
    if (chunk != "[DONE]") choices.push_back(Json::parse(chunk)["choices"].dump());
  }
  return choices;
}

TEST(OpenAiAnswerTest, PartsAsChunks) {
  const OpenAiBoth both = WriteOpenAi(OpenAiKind::kChat, AnswerInParts());
  EXPECT_THAT(
      Choices(both.chunks),
      ElementsAre(
          R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])",
          R"([{"index":0,"delta":{"reasoning_content":"hm"},"logprobs":null,"finish_reason":null}])",
          R"([{"index":0,"delta":{"content":"Let me see."},"logprobs":null,"finish_reason":null}])",
          R"([{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_2","type":"function","function":{"name":"f","arguments":""}}]},"logprobs":null,"finish_reason":null}])",
          R"([{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]},"logprobs":null,"finish_reason":null}])",
          R"([{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"logprobs":null,"finish_reason":null}])",
          R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null}])"));
  EXPECT_EQ(both.chunks.back(), "[DONE]");
  const Json first = Json::parse(both.chunks.front());
  EXPECT_EQ(first["id"], "chatcmpl-r1");
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["created"], 77);
  EXPECT_EQ(first["model"], "m");
  EXPECT_FALSE(first.contains("usage")) << "nobody asked for it";
}

TEST(OpenAiAnswerTest, PartsInOnePiece) {
  const Json whole = WriteOpenAi(OpenAiKind::kChat, AnswerInParts()).whole;
  EXPECT_EQ(
      whole["choices"].dump(),
      R"([{"index":0,"message":{"role":"assistant","content":"Let me see.","refusal":null,"reasoning_content":"hm",)"
      R"("tool_calls":[{"id":"call_2","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},)"
      R"("logprobs":null,"finish_reason":"tool_calls","stop_reason":null}])");
  EXPECT_EQ(
      whole["usage"].dump(),
      R"({"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":4,)"
      R"("cache_write_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}})");
}

TEST(OpenAiAnswerTest, DraftedTokensAreInTheDetailsIfThereAreSome) {
  v1::Usage usage;
  EXPECT_EQ(CompletionDetails(usage).dump(), R"({"reasoning_tokens":0})");
  usage.set_drafted_tokens(5);
  usage.set_accepted_tokens(3);
  EXPECT_EQ(CompletionDetails(usage).dump(),
            R"({"reasoning_tokens":0,"drafted_tokens":5,"accepted_tokens":3})");
}

TEST(OpenAiAnswerTest, UsageComesLastAndOnlyIfAskedFor) {
  const OpenAiBoth both =
      WriteOpenAi(OpenAiKind::kChat,
                  {StartedEvent(), TextEvent("a"), FinishedEvent(v1::FINISH_REASON_LENGTH)}, {.usage = true});
  ASSERT_GE(both.chunks.size(), 3u);
  for (size_t i = 0; i + 2 < both.chunks.size(); ++i) {
    EXPECT_TRUE(Json::parse(both.chunks[i])["usage"].is_null()) << both.chunks[i];
    EXPECT_FALSE(Json::parse(both.chunks[i])["choices"].empty());
  }
  const Json last = Json::parse(both.chunks[both.chunks.size() - 2]);
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["total_tokens"], 13);
}

TEST(OpenAiAnswerTest, ReasonsOfTheEnd) {
  const std::pair<v1::FinishReason, const char*> reasons[] = {
      {v1::FINISH_REASON_STOP_TOKEN, "stop"},       {v1::FINISH_REASON_STOP_STRING, "stop"},
      {v1::FINISH_REASON_LENGTH, "length"},         {v1::FINISH_REASON_CONTEXT_FULL, "length"},
      {v1::FINISH_REASON_TOOL_CALLS, "tool_calls"}, {v1::FINISH_REASON_CONTENT_FILTER, "content_filter"}};
  for (const auto& [reason, word] : reasons) {
    EXPECT_EQ(WriteOpenAi(OpenAiKind::kChat, {StartedEvent(), FinishedEvent(reason)})
                  .whole["choices"][0]["finish_reason"],
              word);
  }
}

TEST(OpenAiAnswerTest, SeveralChoicesAreMixedAndTold) {
  const OpenAiBoth both =
      WriteOpenAi(OpenAiKind::kChat, {StartedEvent(), TextEvent("a", 0), TextEvent("b", 1), TextEvent("c", 0),
                                      FinishedEvent(v1::FINISH_REASON_STOP_TOKEN, 1),
                                      FinishedEvent(v1::FINISH_REASON_LENGTH, 0)});
  EXPECT_EQ(both.whole["choices"][0]["message"]["content"], "ac");
  EXPECT_EQ(both.whole["choices"][1]["message"]["content"], "b");
  // The prompt counts once.
  EXPECT_EQ(both.whole["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(both.whole["usage"]["completion_tokens"], 6);
  std::string texts[2];
  for (const std::string& chunk : both.chunks) {
    if (chunk == "[DONE]") continue;
    const Json choice = Json::parse(chunk)["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["delta"].value("content", "");
  }
  EXPECT_EQ(texts[0], "ac");
  EXPECT_EQ(texts[1], "b");
}

TEST(OpenAiAnswerTest, LogProbabilitiesWithBytesThatAreNoCharacter) {
  v1::GenerateResponse event = TextEvent("é");
  v1::StepLogprobs& step = *event.mutable_delta()->add_logprobs();
  step.mutable_chosen()->set_bytes("\xC3");
  step.mutable_chosen()->set_logprob(-0.5);
  step.add_top()->set_bytes("a");
  const std::vector<v1::GenerateResponse> events = {StartedEvent(), event,
                                                    FinishedEvent(v1::FINISH_REASON_STOP_TOKEN)};
  const OpenAiBoth chat = WriteOpenAi(OpenAiKind::kChat, events);
  EXPECT_EQ(Json::parse(chat.chunks[1])["choices"][0]["logprobs"].dump(),
            "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195],\"top_logprobs\":[{"
            "\"token\":\"a\","
            "\"logprob\":0.0,\"bytes\":[97]}]}]}");
  const OpenAiBoth text = WriteOpenAi(OpenAiKind::kCompletion, events, {.logprobs = true});
  EXPECT_EQ(text.whole["choices"][0]["logprobs"]["token_logprobs"].dump(), "[-0.5]");
}

v1::SamplingTrace TraceOf(const std::string& bytes, int id) {
  v1::SamplingTrace trace;
  trace.set_how(v1::SamplingTrace::HOW_DRAWN);
  trace.set_token_id(id);
  trace.set_vocabulary(600);
  trace.set_after_constraint(500);
  trace.set_after_temperature(400);
  trace.set_after_top_k(300);
  trace.set_after_top_p(200);
  trace.set_after_min_p(100);
  trace.set_uniform(0.25);
  v1::TokenTrace& token = *trace.add_likeliest();
  token.set_token_id(id);
  token.set_bytes(bytes);
  token.set_logit(3);
  token.set_adjusted_logit(2);
  token.set_probability(0.5);
  token.set_tempered_probability(0.625);
  token.set_drawn_probability(0.75);
  return trace;
}

TEST(OpenAiAnswerTest, TracesStandBesideLogProbabilities) {
  v1::GenerateResponse first = TextEvent("a"), silent;
  *first.mutable_delta()->add_sampling() = TraceOf("a", 7);
  // The token's text comes later, or never.
  *silent.mutable_delta()->add_sampling() = TraceOf("\xC3", 8);
  silent.mutable_delta()->mutable_sampling(0)->set_how(v1::SamplingTrace::HOW_FORCED);
  silent.mutable_delta()->mutable_sampling(0)->clear_uniform();
  const std::vector<v1::GenerateResponse> events = {StartedEvent(), first, silent,
                                                    FinishedEvent(v1::FINISH_REASON_STOP_TOKEN)};
  for (const OpenAiKind kind : {OpenAiKind::kChat, OpenAiKind::kCompletion}) {
    const OpenAiBoth both = WriteOpenAi(kind, events, {.echoes = {"P"}});
    Json traces = Json::array();
    std::vector<std::string> beside;
    for (const std::string& chunk : both.chunks) {
      if (chunk == "[DONE]") continue;
      const Json choice = Json::parse(chunk)["choices"][0];
      if (!choice.contains("sampling")) continue;
      beside.push_back(kind == OpenAiKind::kChat ? choice["delta"]["content"] : choice["text"]);
      for (const Json& trace : choice["sampling"]) traces.push_back(trace);
    }
    EXPECT_THAT(beside, ElementsAre("a", "")) << "each trace goes with its own token's text";
    ASSERT_EQ(traces.size(), 2u);
    const Json& whole = both.whole["choices"][0]["sampling"];
    EXPECT_EQ(traces, Json::parse(whole.dump(-1, ' ', false, Json::error_handler_t::replace)));
    EXPECT_EQ(
        traces[0].dump(),
        R"({"how":"drawn","token_id":7,"vocabulary":600,"after_constraint":500,"after_temperature":400,)"
        R"("after_top_k":300,"after_top_p":200,"after_min_p":100,"uniform":0.25,"likeliest":[{"token":"a",)"
        R"("bytes":[97],"token_id":7,"logit":3.0,"adjusted_logit":2.0,"probability":0.5,)"
        R"("tempered_probability":0.625,"drawn_probability":0.75}]})");
    EXPECT_EQ(traces[1]["how"], "forced");
    EXPECT_TRUE(traces[1]["uniform"].is_null());
    EXPECT_EQ(traces[1]["likeliest"][0]["bytes"].dump(), "[195]");
  }
  const OpenAiBoth none = WriteOpenAi(OpenAiKind::kChat, {StartedEvent(), TextEvent("a"), events.back()});
  EXPECT_FALSE(none.whole["choices"][0].contains("sampling"));
  for (const std::string& choices : Choices(none.chunks)) {
    EXPECT_EQ(choices.find("sampling"), std::string::npos);
  }
}

TEST(OpenAiAnswerTest, Completions) {
  const OpenAiBoth both = WriteOpenAi(
      OpenAiKind::kCompletion, {StartedEvent(), TextEvent(" upon"), FinishedEvent(v1::FINISH_REASON_LENGTH)},
      {.echoes = {"Once"}});
  EXPECT_EQ(both.whole["choices"][0]["text"], "Once upon");
  EXPECT_EQ(both.whole["object"], "text_completion");
  EXPECT_EQ(both.whole["id"], "cmpl-r1");
  std::string text;
  for (const std::string& chunk : both.chunks) {
    if (chunk != "[DONE]") text += Json::parse(chunk)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Once upon");
}

v1::StepLogprobs StepOf(const std::string& bytes, float logprob, const std::string& top = "") {
  v1::StepLogprobs step;
  step.mutable_chosen()->set_bytes(bytes);
  step.mutable_chosen()->set_logprob(logprob);
  if (top.empty()) return step;
  v1::TokenLogprob& likeliest = *step.add_top();
  likeliest.set_bytes(top);
  likeliest.set_logprob(-0.5);
  return step;
}

// A prompt of three tokens, of which the first is the tokenizer's own, in two pieces, and an answer of one.
std::vector<v1::GenerateResponse> WithPrompt() {
  v1::GenerateResponse begin, rest, answer = TextEvent("!");
  *begin.mutable_delta()->add_prompt_logprobs() = StepOf("<s>", 0);
  *begin.mutable_delta()->add_prompt_logprobs() = StepOf("On", -2, "A");
  *rest.mutable_delta()->add_prompt_logprobs() = StepOf("ce", -0.5, "ce");
  *answer.mutable_delta()->add_logprobs() = StepOf("!", -1, "?");
  return {StartedEvent(), begin, rest, answer, FinishedEvent(v1::FINISH_REASON_LENGTH)};
}

TEST(OpenAiAnswerTest, APromptIsEchoedWithItsLogProbabilities) {
  const OpenAiBoth both = WriteOpenAi(OpenAiKind::kCompletion, WithPrompt(),
                                      {.echoes = {"Once"}, .prompt_logprobs = true, .logprobs = true});
  const Json& choice = both.whole["choices"][0];
  EXPECT_EQ(choice["text"], "Once!");
  EXPECT_EQ(
      choice["logprobs"].dump(),
      R"({"text_offset":[0,0,2,4],"token_logprobs":[null,-2.0,-0.5,-1.0],"tokens":["<s>","On","ce","!"],)"
      R"("top_logprobs":[null,{"A":-0.5},{"ce":-0.5},{"?":-0.5}]})");
  // As a stream: the text comes once, and the log probabilities as they are told.
  std::string text;
  Json tokens = Json::array(), logprobs = Json::array(), offsets = Json::array();
  for (const std::string& chunk : both.chunks) {
    if (chunk == "[DONE]") continue;
    const Json json = Json::parse(chunk);
    for (const Json& one : json["choices"]) {
      text += one["text"].get<std::string>();
      if (one["logprobs"].is_null()) continue;
      for (const Json& token : one["logprobs"]["tokens"]) tokens.push_back(token);
      for (const Json& logprob : one["logprobs"]["token_logprobs"]) logprobs.push_back(logprob);
      for (const Json& offset : one["logprobs"]["text_offset"]) offsets.push_back(offset);
    }
  }
  EXPECT_EQ(text, "Once!");
  EXPECT_EQ(tokens, choice["logprobs"]["tokens"]);
  EXPECT_EQ(logprobs, choice["logprobs"]["token_logprobs"]);
  EXPECT_EQ(offsets, choice["logprobs"]["text_offset"]);
}

// With the tokenizer's own token before it, and without.
TEST(OpenAiAnswerTest, ABlankOfTheTokenizersIsNotInTheText) {
  for (const bool own : {true, false}) {
    v1::GenerateResponse prompt;
    if (own) *prompt.mutable_delta()->add_prompt_logprobs() = StepOf("<s>", 0);
    *prompt.mutable_delta()->add_prompt_logprobs() = StepOf(" On", -2);
    *prompt.mutable_delta()->add_prompt_logprobs() = StepOf("ce", -2);
    const OpenAiBoth both =
        WriteOpenAi(OpenAiKind::kCompletion,
                    {StartedEvent(), prompt, TextEvent("!"), FinishedEvent(v1::FINISH_REASON_LENGTH)},
                    {.echoes = {"Once"}, .prompt_logprobs = true, .logprobs = true});
    const Json offsets = both.whole["choices"][0]["logprobs"]["text_offset"];
    EXPECT_EQ(offsets.dump(), own ? "[0,0,2]" : "[0,2]");
    EXPECT_EQ(Json::parse(both.chunks[0])["choices"][0]["logprobs"]["text_offset"], offsets);
  }
}

TEST(OpenAiAnswerTest, TokenIdsAreEchoedByTheirTexts) {
  const OpenAiBoth both = WriteOpenAi(OpenAiKind::kCompletion, WithPrompt(),
                                      {.echoes = {""}, .prompt_logprobs = true, .logprobs = true});
  EXPECT_EQ(both.whole["choices"][0]["text"], "<s>Once!");
  std::string text;
  for (const std::string& chunk : both.chunks) {
    if (chunk != "[DONE]") text += Json::parse(chunk)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "<s>Once!");
  EXPECT_EQ(both.whole["choices"][0]["logprobs"]["text_offset"].dump(), "[0,3,5,7]");
}

// Two prompts, two choices of each.
TEST(OpenAiAnswerTest, EveryPromptIsBeforeItsOwnChoices) {
  std::vector<v1::GenerateResponse> events = {StartedEvent()};
  for (const uint32_t choice : {3, 0, 2, 1}) {
    events.push_back(TextEvent("=" + std::to_string(choice), choice));
    events.push_back(FinishedEvent(v1::FINISH_REASON_LENGTH, choice));
  }
  const OpenAiBoth both = WriteOpenAi(OpenAiKind::kCompletion, events, {.echoes = {"a", "b"}, .n = 2});
  std::vector<std::string> whole, texts(4);
  for (const Json& choice : both.whole["choices"]) whole.push_back(choice["text"].get<std::string>());
  for (const std::string& chunk : both.chunks) {
    if (chunk == "[DONE]") continue;
    const Json choice = Json::parse(chunk)["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
  }
  EXPECT_THAT(whole, ElementsAre("a=0", "a=1", "b=2", "b=3"));
  EXPECT_EQ(texts, whole);
}

TEST(AnswerTest, StreamsOfSeveralPromptsAreWholeTogether) {
  protocol::AnswerFold answer(/*most=*/20);
  answer.Add(StartedEvent());
  answer.Add(FinishedEvent(v1::FINISH_REASON_LENGTH, 1));
  answer.Add(FinishedEvent(v1::FINISH_REASON_LENGTH, 0));
  EXPECT_TRUE(answer.CheckWhole().ok());
  EXPECT_FALSE(answer.CheckWhole(3).ok());
  answer.Add(FinishedEvent(v1::FINISH_REASON_LENGTH, 19));
  EXPECT_FALSE(answer.CheckWhole(3).ok()) << "those between are missing";
  v1::Usage sum;
  AddUsage(UsageOf(std::nullopt, answer.choices(), 0, 2), &sum);
  AddUsage(UsageOf(std::nullopt, answer.choices(), 19, 1), &sum);
  // A prompt counts once for its choices.
  EXPECT_EQ(sum.prompt_tokens(), 20u);
  EXPECT_EQ(sum.completion_tokens(), 9u);
  EXPECT_EQ(sum.cached_tokens(), 8u);
  EXPECT_EQ(sum.thinking_tokens(), 3u);
  EXPECT_EQ(sum.written_five_minutes_tokens(), 2u);
}

TEST(AnswerTest, AStreamThatEndsTooSoonIsAnError) {
  protocol::AnswerFold answer;
  EXPECT_FALSE(answer.CheckWhole().ok());
  answer.Add(StartedEvent());
  EXPECT_FALSE(answer.CheckWhole().ok());
  answer.Add(TextEvent("a"));
  EXPECT_FALSE(answer.CheckWhole().ok());
  answer.Add(FinishedEvent(v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(answer.CheckWhole().ok());
}

TEST(OpenAiAnswerTest, WhoAsksIsToldWhereTheTimeWent) {
  v1::GenerateResponse end = FinishedEvent(v1::FINISH_REASON_STOP_TOKEN);
  v1::Finished& finished = *end.mutable_finished();
  finished.mutable_timing()->set_admit_seconds(0.25);
  finished.mutable_timing()->set_prefill_seconds(0.5);
  finished.mutable_timing()->set_ttft_seconds(0.75);
  finished.mutable_relay()->set_decode_worker("d");
  finished.mutable_relay()->set_prefill_worker("p");
  finished.mutable_relay()->set_link("host");
  const OpenAiBoth both =
      WriteOpenAi(OpenAiKind::kChat, {StartedEvent(), TextEvent("a"), end}, {.timing = true});
  const std::string wanted =
      R"({"admit":0.25,"decode_queue":0.0,"prefill_queue":0.0,"prefill":0.5,"transfer":0.0,"first_token":0.0,"ttft":0.75,)"
      R"("tpot":null,"e2e":0.0,"decode_worker":"d","prefill_worker":"p","link":"host"})";
  EXPECT_EQ(both.whole["choices"][0]["baton_timing"].dump(), wanted);
  ASSERT_EQ(both.chunks.size(), 4u);
  EXPECT_EQ(Json::parse(both.chunks[2])["choices"][0]["baton_timing"].dump(), wanted);
  for (const size_t other : {0, 1}) {
    EXPECT_FALSE(Json::parse(both.chunks[other])["choices"][0].contains("baton_timing"));
  }
  // Nobody else is.
  EXPECT_FALSE(WriteOpenAi(OpenAiKind::kChat, {StartedEvent(), TextEvent("a"), end})
                   .whole["choices"][0]
                   .contains("baton_timing"));
}

TEST(OpenAiAnswerTest, WarningsStandAtTheChoicesEnd) {
  v1::GenerateResponse end = FinishedEvent(v1::FINISH_REASON_STOP_TOKEN);
  v1::Warning& warning = *end.mutable_finished()->add_warnings();
  warning.set_kind(v1::Warning::KIND_SETTING);
  warning.set_count(1);
  warning.set_message("temperature: too high");
  const OpenAiBoth both = WriteOpenAi(OpenAiKind::kChat, {StartedEvent(), TextEvent("a"), end});
  const std::string wanted = R"([{"kind":"setting","count":1,"message":"temperature: too high"}])";
  EXPECT_EQ(both.whole["choices"][0]["warnings"].dump(), wanted);
  EXPECT_EQ(Json::parse(both.chunks[2])["choices"][0]["warnings"].dump(), wanted);
  for (const size_t other : {0, 1}) {
    EXPECT_FALSE(Json::parse(both.chunks[other])["choices"][0].contains("warnings"));
  }
}

}  // namespace
}  // namespace baton::gateway
