// Constraints through real processes: answers obey what was asked for, whoever writes them, and what cannot
// be compiled is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/e2e/folded_answer.h"
#include "tests/process_status.h"

namespace baton::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 3, "maxLength": 40},
        "age": {"type": "integer", "minimum": 1, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3}},
        "required": ["name", "age", "tags"], "additionalProperties": false})";

v1::GenerateRequest AskFor(const std::string& text, double temperature = 1) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_temperature(static_cast<float>(temperature));
  request.mutable_sampling()->set_seed(5);
  request.mutable_stop()->set_max_tokens(300);
  request.mutable_output()->set_token_ids(true);
  return request;
}

void ExpectTextObeys(const std::string& text) {
  const auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(value.is_object()) << text;
  EXPECT_EQ(value.size(), 3u) << text;
  EXPECT_GE(value["name"].get<std::string>().size(), 3u) << text;
  EXPECT_TRUE(value["age"] >= 1 && value["age"] <= 120) << text;
  EXPECT_TRUE(value["tags"].size() >= 1 && value["tags"].size() <= 3) << text;
  for (const auto& tag : value["tags"]) EXPECT_TRUE(tag == "red" || tag == "green") << text;
}

TEST(ConstraintTest, EveryChoiceObeysTheSchema) {
  Fleet fleet;
  v1::GenerateRequest request = AskFor("Once upon a time");
  request.mutable_constraint()->set_json_schema(kSchema);
  request.mutable_options()->set_n(4);
  request.mutable_output()->set_logprobs(true);
  request.mutable_sampling()->set_repetition_penalty(1.1f);
  const FoldedAnswer outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  ASSERT_EQ(outcome.answer.choices_size(), 4);
  for (const v1::AnswerChoice& choice : outcome.answer.choices()) {
    EXPECT_EQ(choice.finished().reason(), v1::FINISH_REASON_STOP_TOKEN) << choice.text();
    ExpectTextObeys(choice.text());
  }
}

TEST(ConstraintTest, RegexChoicesObjectsAndGrammars) {
  Fleet fleet;
  v1::GenerateRequest request = AskFor("The code is");
  request.mutable_constraint()->set_regex("[A-Z]{2}-\\d{4}(/x)?");
  FoldedAnswer outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_THAT(outcome.answer.choices(0).text(), testing::MatchesRegex("[A-Z]{2}-[0-9]{4}(/x)?"));

  auto& choices = *request.mutable_constraint()->mutable_choices();
  choices.add_values("yes, of course");
  choices.add_values("no");
  outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_THAT(outcome.answer.choices(0).text(), testing::AnyOf("yes, of course", "no"));

  request.mutable_constraint()->set_lark("start: \"<\" /[a-z]+/ \">\"");
  request.mutable_stop()->set_max_tokens(5);
  outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_THAT(outcome.answer.choices(0).text(), testing::StartsWith("<"));

  request.mutable_constraint()->set_json_object(true);
  request.mutable_stop()->set_max_tokens(3);
  outcome = Fold(fleet, request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_THAT(outcome.answer.choices(0).text(), testing::StartsWith("{"));
  EXPECT_EQ(outcome.answer.choices(0).finished().reason(), v1::FINISH_REASON_LENGTH);
}

TEST(ConstraintTest, AWorkerThatDiesInTheMiddleOfAStringChangesNothing) {
  // A token a step: the worker is held after eight or nine of them, in the name.
  Fleet fleet({.prefill = 1, .decode = 2, .decode_flags = {"--speculation", "off"}, .gated = true});
  v1::GenerateRequest request = AskFor("Once upon a time");
  request.mutable_constraint()->set_json_schema(kSchema);
  const FoldedAnswer whole = Fold(fleet, request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  ASSERT_GT(whole.answer.choices(0).finished().usage().completion_tokens(), 10u);
  fleet.decode_gates().Allow(8);
  const FoldedAnswer moved = Fold(fleet, request, 6, [&] { fleet.LoseHeldDecode(SIGKILL); });
  ASSERT_TRUE(moved.status.ok()) << moved.status.error_message();
  EXPECT_EQ(moved.answer.choices(0).text(), whole.answer.choices(0).text());
  EXPECT_EQ(moved.answer.choices(0).finished().relay().migrations(), 1u);
  ExpectTextObeys(moved.answer.choices(0).text());
}

TEST(ConstraintTest, ThinkingIsFreeAndTheAnswerIsNot) {
  Fleet fleet;
  v1::ChatRequest request;
  v1::Message* const message = request.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("What is 3 plus 4?");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(300);
  request.mutable_thinking()->set_enabled(true);
  request.mutable_thinking()->set_budget_tokens(20);
  request.mutable_constraint()->set_regex("Answer: [0-9]{1,3}");
  grpc::ClientContext context;
  v1::ChatUnaryResponse answer;
  v1::ChatUnaryRequest unary;
  *unary.mutable_chat() = request;
  const grpc::Status status = fleet.stub().ChatUnary(&context, unary, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::AnswerChoice& choice = answer.choices(0);
  EXPECT_THAT(choice.text(), testing::MatchesRegex("Answer: [0-9]{1,3}")) << answer.DebugString();
  EXPECT_GT(choice.finished().usage().thinking_tokens(), 0u) << answer.DebugString();
}

// The slow backend, whose steps overlap, gives the same answer.
TEST(ConstraintTest, TheReferenceBackendObeysAndAgrees) {
  v1::GenerateRequest request = AskFor("Once upon a time");
  request.mutable_constraint()->set_regex("[a-z]{3,8}( [a-z]{2,6}){2}: [0-9]{1,3}");
  request.mutable_sampling()->set_repetition_penalty(1.1f);
  std::string texts[2];
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string> flags = {"--backend", i == 0 ? "cpu" : "reference"};
    Fleet fleet({.prefill_flags = flags, .decode_flags = flags});
    const FoldedAnswer outcome = Fold(fleet, request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.answer.choices(0).finished().reason(), v1::FINISH_REASON_STOP_TOKEN);
    texts[i] = outcome.answer.choices(0).text();
    EXPECT_THAT(texts[i], testing::MatchesRegex("[a-z]+( [a-z]+)( [a-z]+): [0-9]+"));
  }
  EXPECT_EQ(texts[0], texts[1]);
}

// Grammars that are refused after much work, and ones whose masks are dear, beside requests that have none:
// those all come to their end, with the text that they have alone.
TEST(ConstraintTest, HostileGrammarsKeepNobodyElseFromAnAnswer) {
  Fleet fleet;
  v1::GenerateRequest plain = AskFor("Once upon a time");
  plain.mutable_stop()->set_max_tokens(40);
  plain.mutable_stop()->set_ignore_eos(true);
  const FoldedAnswer alone = Fold(fleet, plain);
  ASSERT_TRUE(alone.status.ok()) << alone.status.error_message();
  std::atomic<bool> over = false;
  std::atomic<int> refused = 0, drawn = 0, other = 0;
  std::vector<std::thread> hostile;
  for (int i = 0; i < 4; ++i) {
    hostile.emplace_back([&, i] {
      for (int round = 0; !over; ++round) {
        v1::GenerateRequest request = AskFor("x");
        request.mutable_stop()->set_max_tokens(60);
        // Never the same, so that no verdict is known.
        const std::string salt = std::to_string(i) + "-" + std::to_string(round);
        request.mutable_constraint()->set_regex(i % 2 == 0 ? "(" + salt + "|a|b)*a(a|b){60}" + salt
                                                           : "([a-z ]*[aeiou][a-z ]{20,30}){1,40}" + salt);
        const grpc::Status status = Fold(fleet, request).status;
        (status.ok() ? drawn : status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ? refused : other)++;
      }
    });
  }
  // Some of them are on their way before the first, and until the last.
  for (int i = 0; i < 10 || (refused + drawn < 8 && i < 1000); ++i) {
    const FoldedAnswer beside = Fold(fleet, plain);
    EXPECT_TRUE(beside.status.ok()) << beside.status.error_message();
    EXPECT_EQ(beside.answer.choices(0).text(), alone.answer.choices(0).text());
    if (testing::Test::HasFailure()) break;
  }
  over = true;
  for (std::thread& thread : hostile) thread.join();
  EXPECT_GE(refused + drawn, 8);
  EXPECT_EQ(other, 0);
  fleet.ExpectNothingHeld();
}

TEST(ConstraintTest, AnchorsAtTheEndsOfARegexChangeNothing) {
  Fleet fleet;
  v1::GenerateRequest request = AskFor("x");
  for (const char* regex : {"ab", "^ab", "ab$", "^ab$"}) {
    request.mutable_constraint()->set_regex(regex);
    const FoldedAnswer outcome = Fold(fleet, request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.answer.choices(0).text(), "ab") << regex;
  }
}

TEST(ConstraintTest, WhatAutomataHeldIsGivenBack) {
  Fleet fleet;
  // All at once, with 300 tokens each.
  const auto ask = [&](int count, const std::string& regex) {
    std::vector<std::thread> clients;
    for (int i = 0; i < count; ++i) {
      clients.emplace_back([&, i] {
        v1::GenerateRequest request = AskFor("Question " + std::to_string(i), 2);
        request.mutable_stop()->set_ignore_eos(regex.empty());
        request.mutable_sampling()->set_seed(static_cast<uint64_t>(i));
        if (!regex.empty()) request.mutable_constraint()->set_regex(regex);
        const grpc::Status status = Fold(fleet, request).status;
        EXPECT_TRUE(status.ok()) << status.error_message();
      });
    }
    for (std::thread& client : clients) client.join();
  };
  ask(64, "");  // all of the KV memory is in use from now on
  const pid_t decode = fleet.decode(0).pid();
  const int64_t before = StatusOf(decode, "VmRSS");
  // Each token makes some hundred new states.
  ask(64, "(.|\\n)*[aeiot](.|\\n){24}");
  constexpr int64_t kMiB = 1 << 20;
  const auto left = [&] { return (StatusOf(decode, "VmRSS") - before) / kMiB; };
  EXPECT_GT(StatusOf(decode, "VmHWM") - before, 100 * kMiB) << "the automata were large";
  Await([&] { return left() < 20 * kPatience; },
        [&] { return std::to_string(left()) + " MiB less of memory"; });
}

TEST(ConstraintTest, RefusalsNameTheFieldAndTheKeyword) {
  Fleet fleet;
  v1::GenerateRequest request = AskFor("x");
  const auto refused = [&] {
    const grpc::Status status = Fold(fleet, request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    return status.error_message();
  };
  request.mutable_constraint()->set_json_schema(R"({"type": "object", "dependentSchemas": {}})");
  EXPECT_EQ(
      refused(),
      "constraint.json_schema: failed to compile JSON schema: Unimplemented keys: [\"dependentSchemas\"]");
  for (const char* regex : {"(", "a$b", "a^b", "\\ba", "a(?=b)"}) {
    request.mutable_constraint()->set_regex(regex);
    EXPECT_THAT(refused(), HasSubstr("constraint.regex")) << regex;
  }
  request.mutable_constraint()->set_lark("start: \"a\"\nb = 3\n");
  EXPECT_THAT(refused(), testing::AllOf(HasSubstr("constraint.lark"), HasSubstr("2(")));
  request.mutable_constraint()->mutable_choices();
  EXPECT_THAT(refused(), HasSubstr("constraint.choices"));
  request.mutable_constraint()->Clear();
  EXPECT_THAT(refused(), HasSubstr("constraint"));
  request.mutable_constraint()->set_regex("a+");
  request.mutable_stop()->set_ignore_eos(true);
  EXPECT_THAT(refused(), HasSubstr("ignore_eos"));
}

}  // namespace
}  // namespace baton::e2e
