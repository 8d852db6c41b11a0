// Conversations that outgrow the context, through real processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kContextTokens = 2304;  // of the shipped model

grpc::Status ChatUnary(Fleet& fleet, const v1::ChatRequest& request, v1::ChatUnaryResponse* answer) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(240)));
  v1::ChatUnaryRequest unary;
  *unary.mutable_chat() = request;
  return fleet.stub().ChatUnary(&context, unary, answer);
}

void AddTurn(v1::ChatRequest& request, const std::string& role, const std::string& content) {
  v1::Message* message = request.mutable_conversation()->add_messages();
  message->set_role(role);
  message->set_content(content);
}

TEST(OverflowTest, AConversationGoesOnWithoutItsOldestTurnsAndStaysCached) {
  Fleet fleet;
  v1::ChatRequest request;
  AddTurn(request, "system", "You are brief.");
  for (int turn = 0; turn < 120; ++turn) {
    AddTurn(request, "user",
            fmt::format("This is note {}. Please keep it in mind until I ask for it again.", turn));
    AddTurn(request, "assistant", fmt::format("I will remember that this was note {}.", turn));
  }
  AddTurn(request, "user", "Which note was first?");
  request.mutable_stop()->set_max_tokens(8);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0);

  v1::ChatUnaryResponse answer;
  grpc::Status status = ChatUnary(fleet, request, &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("2304"));

  request.mutable_overflow()->set_mode(v1::Overflow::MODE_DROP_OLDEST);
  status = ChatUnary(fleet, request, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::ContextReport cut = answer.started().context();
  EXPECT_GT(cut.dropped_messages(), 0u);
  EXPECT_EQ(cut.dropped_messages() % 2, 0u) << "whole turns";
  EXPECT_LE(answer.started().prompt_tokens(), kContextTokens);

  // The next turn is cut at the same place and finds its prompt in the cache.
  AddTurn(request, "assistant", answer.choices(0).text());
  AddTurn(request, "user", "And the last one?");
  status = ChatUnary(fleet, request, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.started().context().dropped_messages(), cut.dropped_messages());
  EXPECT_GT(answer.choices(0).finished().usage().cached_tokens(), answer.started().prompt_tokens() * 3 / 4)
      << answer.choices(0).finished().usage().DebugString();
  EXPECT_EQ(Metric(fleet.router(), "baton_router_overflow_total{action=\"removed\"}"), 2);
  EXPECT_GT(Metric(fleet.router(), "baton_router_overflow_removed_tokens_total"),
            2.0 * cut.removed_tokens() - 1);
}

TEST(OverflowTest, AnAnswerThatFillsTheContextSaysSo) {
  Fleet fleet;
  v1::ChatRequest request;
  std::string words = "Tell me more";
  while (words.size() < 6000) words += " and more of the same story";
  AddTurn(request, "user", words);
  request.mutable_stop()->set_max_tokens(100'000);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_overflow()->set_mode(v1::Overflow::MODE_CLAMP_OUTPUT);
  v1::ChatUnaryResponse answer;
  const grpc::Status status = ChatUnary(fleet, request, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::Finished& finished = answer.choices(0).finished();
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_CONTEXT_FULL);
  EXPECT_EQ(finished.usage().prompt_tokens() + finished.usage().completion_tokens(), kContextTokens);
  EXPECT_EQ(answer.started().context().clamped_max_tokens(), finished.usage().completion_tokens());
  EXPECT_EQ(Metric(fleet.router(), "baton_router_overflow_total{action=\"clamped\"}"), 1);
}

}  // namespace
}  // namespace baton::e2e
