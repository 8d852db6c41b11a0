// Calls of tools under a grammar, through real processes and the shipped model: required, named and strict
// calls obey their schemas, whoever writes them, and what cannot be had is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>

#include "nlohmann/json.hpp"
#include "tests/e2e/folded_answer.h"

namespace baton::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A request for arguments that no model would fill in without being made to.
v1::ChatRequest AskWithTools(const std::string& text) {
  v1::ChatRequest request;
  v1::Message* const message = request.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content(text);
  v1::Tool* tool = request.mutable_conversation()->add_tools();
  tool->set_name("get_weather");
  tool->set_description("Get the weather of a city.");
  tool->set_parameters_json(
      R"({"type": "object", "properties": {"city": {"type": "string", "minLength": 2, "maxLength": 20},
          "unit": {"enum": ["kelvin", "rankine"]}, "days": {"type": "integer", "minimum": 3, "maximum": 9}},
          "required": ["city", "unit", "days"], "additionalProperties": false})");
  tool = request.mutable_conversation()->add_tools();
  tool->set_name("paint");
  tool->set_parameters_json(
      R"({"type": "object", "properties": {"red": {"type": "integer", "minimum": 0, "maximum": 255}},
          "required": ["red"], "additionalProperties": false})");
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(3);
  request.mutable_stop()->set_max_tokens(400);
  return request;
}

void ExpectCallObeys(const v1::ToolCall& call) {
  const auto value = nlohmann::json::parse(call.arguments_json(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(value.is_object()) << call.DebugString();
  if (call.name() == "paint") {
    EXPECT_TRUE(value.size() == 1 && value["red"] >= 0 && value["red"] <= 255) << call.DebugString();
    return;
  }
  EXPECT_EQ(call.name(), "get_weather");
  ASSERT_EQ(value.size(), 3u) << call.DebugString();
  EXPECT_GE(value["city"].get<std::string>().size(), 2u);
  EXPECT_TRUE(value["unit"] == "kelvin" || value["unit"] == "rankine") << call.DebugString();
  EXPECT_TRUE(value["days"] >= 3 && value["days"] <= 9) << call.DebugString();
}

// The calls of an answer that ended by itself, which obey. Beside them there is thinking at most.
std::vector<v1::ToolCall> CallsOf(const v1::AnswerChoice& choice) {
  EXPECT_EQ(choice.finished().reason(), v1::FINISH_REASON_TOOL_CALLS) << choice.DebugString();
  EXPECT_TRUE(choice.finished().warnings().empty()) << choice.DebugString();
  std::vector<v1::ToolCall> calls;
  for (const v1::AnswerPart& part : choice.parts()) {
    EXPECT_FALSE(part.has_text()) << choice.DebugString();
    if (!part.has_tool_call()) continue;
    EXPECT_TRUE(part.complete());
    ExpectCallObeys(part.tool_call());
    calls.push_back(part.tool_call());
  }
  EXPECT_FALSE(calls.empty()) << choice.DebugString();
  return calls;
}

TEST(StrictToolsTest, RequiredCallsObeyWhateverTheModelWants) {
  Fleet fleet;
  v1::ChatRequest request = AskWithTools("Hello!");
  request.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  request.mutable_tool_choice()->set_parallel(false);
  request.mutable_options()->set_n(3);
  FoldedAnswer outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  ASSERT_EQ(outcome.answer.choices_size(), 3);
  for (const v1::AnswerChoice& choice : outcome.answer.choices()) EXPECT_EQ(CallsOf(choice).size(), 1u);

  request.mutable_tool_choice()->add_names("paint");
  outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  for (const v1::AnswerChoice& choice : outcome.answer.choices())
    EXPECT_EQ(CallsOf(choice)[0].name(), "paint");
}

TEST(StrictToolsTest, ThinkingComesFirst) {
  Fleet fleet;
  v1::ChatRequest request = AskWithTools("What is 3 plus 4?");
  request.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  request.mutable_tool_choice()->set_parallel(false);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_thinking()->set_enabled(true);
  request.mutable_thinking()->set_budget_tokens(20);
  const FoldedAnswer outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(CallsOf(outcome.answer.choices(0)).size(), 1u);
  EXPECT_GT(outcome.answer.choices(0).finished().usage().thinking_tokens(), 0u);
}

// The model calls get_weather here, and not with these arguments.
TEST(StrictToolsTest, AStrictToolIsCalledAsItsSchemaSays) {
  Fleet fleet;
  v1::ChatRequest request = AskWithTools("What is the weather in Paris?");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_conversation()->mutable_tools(0)->set_strict(true);
  const FoldedAnswer outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  int calls = 0;
  for (const v1::AnswerPart& part : outcome.answer.choices(0).parts()) {
    if (!part.has_tool_call()) continue;
    ++calls;
    ExpectCallObeys(part.tool_call());
  }
  EXPECT_GE(calls, 1) << outcome.answer.DebugString();

  v1::ChatRequest hello = AskWithTools("Hello!");
  hello.mutable_sampling()->set_temperature(0);
  const FoldedAnswer free = Fold(fleet, hello);
  hello.mutable_conversation()->mutable_tools(0)->set_strict(true);
  const FoldedAnswer strict = Fold(fleet, hello);
  EXPECT_EQ(strict.answer.choices(0).text(), free.answer.choices(0).text()) << "text is free";
}

TEST(StrictToolsTest, LengthWinsAndSaysThatTheCallIsIncomplete) {
  Fleet fleet;
  v1::ChatRequest request = AskWithTools("Hello!");
  request.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  request.mutable_thinking()->set_enabled(false);
  request.mutable_stop()->set_max_tokens(4);
  const FoldedAnswer outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  const v1::Finished& finished = outcome.answer.choices(0).finished();
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_LENGTH);
  ASSERT_EQ(finished.warnings_size(), 1) << outcome.answer.DebugString();
  EXPECT_EQ(finished.warnings(0).kind(), v1::Warning::KIND_INCOMPLETE_CALL);
}

TEST(StrictToolsTest, AWorkerThatDiesInTheMiddleOfACallChangesNothing) {
  // A token a step.
  Fleet fleet({.prefill = 1, .decode = 2, .decode_flags = {"--speculation", "off"}, .gated = true});
  v1::ChatRequest request = AskWithTools("Hello!");
  request.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  request.mutable_tool_choice()->set_parallel(false);
  const FoldedAnswer whole = Fold(fleet, request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  ASSERT_GT(whole.answer.choices(0).finished().usage().completion_tokens(), 12u);
  fleet.decode_gates().Allow(10);
  const FoldedAnswer moved = Fold(fleet, request, 6, [&] { fleet.LoseHeldDecode(SIGKILL); });
  ASSERT_TRUE(moved.status.ok()) << moved.status.error_message();
  EXPECT_EQ(moved.answer.choices(0).finished().relay().migrations(), 1u);
  const auto calls = CallsOf(whole.answer.choices(0)), after = CallsOf(moved.answer.choices(0));
  ASSERT_EQ(after.size(), calls.size());
  EXPECT_EQ(after[0].arguments_json(), calls[0].arguments_json());
}

TEST(StrictToolsTest, RefusalsNameTheToolAndTheKeyword) {
  Fleet fleet;
  v1::ChatRequest request = AskWithTools("Hello!");
  v1::Tool& tool = *request.mutable_conversation()->mutable_tools(1);
  tool.set_strict(true);
  tool.set_parameters_json(R"({"type": "object", "not": {"required": ["red"]}})");
  const auto refused = [&] {
    const grpc::Status status = Fold(fleet, request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    return status.error_message();
  };
  EXPECT_THAT(refused(), AllOf(HasSubstr("conversation.tools[1].parameters_json"), HasSubstr("\"paint\""),
                               HasSubstr("not")));
  tool.set_strict(false);
  request.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
  EXPECT_THAT(refused(), HasSubstr("conversation.tools[1].parameters_json"));
  request.mutable_conversation()->clear_tools();
  EXPECT_THAT(refused(), HasSubstr("conversation.tools"));

  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(fleet.stub().ListModels(&context, {}, &models).ok());
  EXPECT_TRUE(models.models(0).strict_tools());
}

}  // namespace
}  // namespace baton::e2e
