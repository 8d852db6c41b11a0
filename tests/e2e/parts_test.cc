// Typed parts from the shipped model through real processes: a call of a tool and the turn after its result,
// thinking and its budget, CompleteParts against the stream, and a worker that dies in the middle of all
// that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/status.h"
#include "tests/e2e/folded_answer.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

using ::testing::HasSubstr;

v1::ChatRequest AskText(const std::string& text) {
  v1::ChatRequest request;
  v1::Message* const message = request.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content(text);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_seed(1);  // ids of calls are made of it
  request.mutable_output()->set_token_ids(true);
  return request;
}

v1::ChatRequest AskForWeather() {
  v1::ChatRequest request = AskText("What is the weather in Paris?");
  v1::Tool* const tool = request.mutable_conversation()->add_tools();
  tool->set_name("get_weather");
  tool->set_description("Get the weather of a city.");
  tool->set_parameters_json(
      R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})");
  return request;
}

v1::ChatUnaryResponse CompleteParts(Fleet& fleet, const v1::ChatRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(120)));
  v1::ChatUnaryResponse answer;
  v1::ChatUnaryRequest unary;
  *unary.mutable_chat() = request;
  const grpc::Status status = fleet.stub().ChatUnary(&context, unary, &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return answer;
}

// The answer that the stream folds to. `disturb` is called once so many tokens have come.
v1::ChatUnaryResponse Stream(Fleet& fleet, const v1::ChatRequest& request, uint32_t disturb_after = 0,
                             const std::function<void()>& disturb = nullptr) {
  const FoldedAnswer folded = Fold(fleet, request, disturb_after, disturb);
  EXPECT_TRUE(folded.status.ok()) << folded.status.error_message();
  return folded.answer;
}

// Without what differs from run to run.
std::string Comparable(v1::ChatUnaryResponse answer) {
  answer.mutable_started()->clear_request_id();
  for (v1::AnswerChoice& choice : *answer.mutable_choices()) {
    choice.mutable_finished()->clear_timing();
    choice.mutable_finished()->clear_relay();
    choice.mutable_finished()->mutable_usage()->clear_decode_cached_tokens();
    choice.mutable_finished()->mutable_usage()->clear_prefill_cached_tokens();
    choice.mutable_finished()->mutable_usage()->clear_cached_tokens();
    choice.mutable_finished()->mutable_usage()->clear_plain_tokens();
    // Past answers give drafts to copy from.
    choice.mutable_finished()->mutable_usage()->clear_drafted_tokens();
    choice.mutable_finished()->mutable_usage()->clear_accepted_tokens();
  }
  return answer.DebugString();
}

TEST(PartsTest, AToolIsCalledAndItsResultIsTold) {
  Fleet fleet;
  v1::ChatRequest request = AskForWeather();
  const v1::ChatUnaryResponse called = CompleteParts(fleet, request);
  ASSERT_EQ(called.choices_size(), 1);
  const v1::AnswerChoice& choice = called.choices(0);
  EXPECT_EQ(choice.finished().reason(), v1::FINISH_REASON_TOOL_CALLS) << called.DebugString();
  ASSERT_GE(choice.parts_size(), 1);
  const v1::AnswerPart& part = choice.parts(choice.parts_size() - 1);
  ASSERT_TRUE(part.has_tool_call());
  EXPECT_TRUE(part.complete());
  EXPECT_EQ(part.tool_call().name(), "get_weather");
  EXPECT_THAT(part.tool_call().arguments_json(), HasSubstr("{\"city\": "));
  EXPECT_EQ(choice.text().find("<tool_call>"), std::string::npos);
  EXPECT_EQ(Comparable(Stream(fleet, request)), Comparable(called));

  // The next turn, as README tells it.
  v1::Message* const assistant = request.mutable_conversation()->add_messages();
  assistant->set_role("assistant");
  assistant->set_content(choice.text());
  *assistant->add_tool_calls() = part.tool_call();
  v1::Message* const result = request.mutable_conversation()->add_messages();
  result->set_role("tool");
  result->set_tool_call_id(part.tool_call().id());
  result->set_content("sunny");
  const v1::ChatUnaryResponse told = CompleteParts(fleet, request);
  EXPECT_EQ(told.choices(0).finished().reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_THAT(told.choices(0).text(), HasSubstr("sunny"));

  // The same answer as it was written, for clients that parse for themselves.
  v1::ChatRequest raw = AskForWeather();
  raw.mutable_output()->set_raw_text(true);
  const v1::ChatUnaryResponse written = CompleteParts(fleet, raw);
  EXPECT_THAT(written.choices(0).text(), HasSubstr("<tool_call>"));
  EXPECT_EQ(written.choices(0).parts_size(), 0);
  EXPECT_THAT(written.choices(0).token_ids(), ::testing::ElementsAreArray(choice.token_ids()));
  fleet.ExpectNothingHeld();
}

TEST(PartsTest, ThinkingIsShownCountedHiddenAndBounded) {
  Fleet fleet;
  v1::ChatRequest request = AskText("What is 3 + 4?");
  request.mutable_thinking()->set_enabled(true);
  const v1::ChatUnaryResponse shown = CompleteParts(fleet, request);
  ASSERT_EQ(shown.choices(0).parts_size(), 2) << shown.DebugString();
  EXPECT_FALSE(shown.choices(0).parts(0).thinking().empty());
  EXPECT_THAT(shown.choices(0).text(), HasSubstr("3 + 4"));
  const uint32_t thought = shown.choices(0).finished().usage().thinking_tokens();
  EXPECT_GT(thought, 2u);
  EXPECT_LT(thought, shown.choices(0).finished().usage().completion_tokens());

  request.mutable_thinking()->set_show(v1::Thinking::SHOW_NONE);
  const v1::ChatUnaryResponse hidden = CompleteParts(fleet, request);
  EXPECT_EQ(hidden.choices(0).text(), shown.choices(0).text());
  EXPECT_TRUE(hidden.choices(0).parts(0).thinking().empty());
  EXPECT_EQ(hidden.choices(0).finished().usage().thinking_tokens(), thought);

  request.mutable_thinking()->set_show(v1::Thinking::SHOW_TEXT);
  request.mutable_thinking()->set_budget_tokens(3);
  request.mutable_output()->set_logprobs(true);
  const v1::ChatUnaryResponse bounded = CompleteParts(fleet, request);
  const v1::AnswerChoice& choice = bounded.choices(0);
  EXPECT_LT(choice.finished().usage().thinking_tokens(), thought);
  ASSERT_EQ(choice.parts_size(), 2) << bounded.DebugString();
  EXPECT_TRUE(choice.parts(0).complete());
  EXPECT_FALSE(choice.text().empty());
  EXPECT_EQ(choice.logprobs_size(), choice.token_ids_size());
  // Its thoughts up to the budget are those without one.
  EXPECT_TRUE(std::equal(choice.token_ids().begin(), choice.token_ids().begin() + 3,
                         shown.choices(0).token_ids().begin()));
  request.mutable_output()->clear_logprobs();  // another way to draw, where the machine has one
  EXPECT_THAT(CompleteParts(fleet, request).choices(0).token_ids(),
              ::testing::ElementsAreArray(choice.token_ids()));
}

// Whoever else is in the batch: what thinks, calls and talks at once has the parts that each has alone.
TEST(PartsTest, ManyAtOnceAreEachAsAlone) {
  Fleet fleet({.prefill = 1, .decode = 1});
  std::vector<v1::ChatRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    v1::ChatRequest request = i % 4 == 3 ? AskText("Hello! My name is Ada.") : AskForWeather();
    request.mutable_thinking()->set_enabled(i % 2 == 1);
    request.mutable_sampling()->set_temperature(i < 4 ? 0.0f : 1.2f);
    request.mutable_sampling()->set_seed(i);
    request.mutable_stop()->set_max_tokens(20 + 15 * i);  // they come and go
    requests.push_back(std::move(request));
  }
  std::vector<std::string> alone;
  int calls = 0;
  for (const v1::ChatRequest& request : requests) {
    const v1::ChatUnaryResponse answer = CompleteParts(fleet, request);
    for (const v1::AnswerPart& part : answer.choices(0).parts()) calls += part.has_tool_call() ? 1 : 0;
    alone.push_back(Comparable(answer));
  }
  EXPECT_GT(calls, 2);
  std::vector<std::string> together(requests.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] {
      together[i] = Comparable(i % 2 == 0 ? CompleteParts(fleet, requests[i]) : Stream(fleet, requests[i]));
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i], alone[i]) << "request " << i;
  fleet.ExpectNothingHeld();
}

// Long answers of everything: text, thinking, calls, and markup that is none.
TEST(PartsTest, AKilledWorkersPartsGoOnElsewhere) {
  Fleet fleet({.prefill = 1, .decode = 2, .gated = true});
  v1::ChatRequest request = AskForWeather();
  request.mutable_thinking()->set_enabled(true);
  request.mutable_thinking()->set_budget_tokens(40);
  request.mutable_sampling()->set_temperature(1.1f);
  request.mutable_sampling()->set_seed(5);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_stop()->set_max_tokens(800);
  request.mutable_stop()->add_stop("a string that does not come");
  const v1::ChatUnaryResponse undisturbed = CompleteParts(fleet, request);
  EXPECT_GT(undisturbed.choices(0).parts_size(), 1);
  constexpr int64_t kSteps = 28;
  ASSERT_GT(undisturbed.choices(0).finished().usage().completion_tokens(), kSteps * kStepTokens);
  fleet.decode_gates().Allow(kSteps);
  const v1::ChatUnaryResponse moved = Stream(fleet, request, 20, [&] { fleet.LoseHeldDecode(SIGKILL); });
  EXPECT_EQ(moved.choices(0).finished().relay().migrations(), 1u);
  EXPECT_EQ(Comparable(moved), Comparable(undisturbed));
}

}  // namespace
}  // namespace baton::e2e
