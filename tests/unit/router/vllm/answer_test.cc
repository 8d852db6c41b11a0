#include "router/vllm/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::router::vllm {
namespace {

using testing::ElementsAre;

v1::GenerateResponse Started() {
  v1::GenerateResponse response;
  response.mutable_started()->set_prompt_tokens(4);
  return response;
}

v1::GenerateResponse Delta(const std::string& text, int32_t id, uint32_t choice = 0) {
  v1::GenerateResponse response;
  v1::Delta& delta = *response.mutable_delta();
  delta.set_choice(choice);
  delta.set_text(text);
  delta.set_tokens(1);
  delta.add_token_ids(id);
  v1::StepLogprobs& step = *delta.add_logprobs();
  step.mutable_chosen()->set_token_id(id);
  step.mutable_chosen()->set_logprob(-1);
  for (const int32_t other : {id + 1, id}) {
    v1::TokenLogprob& top = *step.add_top();
    top.set_token_id(other);
    top.set_logprob(-0.5f);
  }
  return response;
}

v1::GenerateResponse Finished(v1::FinishReason reason, uint32_t choice = 0) {
  v1::GenerateResponse response;
  response.mutable_finished()->set_choice(choice);
  response.mutable_finished()->set_reason(reason);
  return response;
}

TEST(VllmAnswerTest, PiecesTellThePromptOnceAndCountTheirTokens) {
  Answer answer({.token_ids = true, .logprobs = true, .candidates = true, .prompt = {1, 2}});
  EXPECT_FALSE(answer.Piece(Started()).has_value());
  const auto first = answer.Piece(Delta("a", 5));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->prompt_info().num_prompt_tokens(), 4u);
  EXPECT_THAT(first->prompt_info().token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(first->outputs().text(), "a");
  EXPECT_THAT(first->outputs().token_ids(), ElementsAre(5));
  EXPECT_THAT(first->outputs().logprobs(), ElementsAre(-1));
  ASSERT_EQ(first->outputs().candidate_tokens_size(), 1);
  ASSERT_EQ(first->outputs().candidate_tokens(0).tokens_size(), 1) << "without the one that was drawn";
  EXPECT_EQ(first->outputs().candidate_tokens(0).tokens(0).id(), 6u);
  EXPECT_EQ(first->outputs().candidate_tokens(0).tokens(0).rank(), 1u);
  const auto other = answer.Piece(Delta("z", 7, 1));
  EXPECT_FALSE(other->has_prompt_info());
  EXPECT_EQ(other->outputs().index(), 1u);
  answer.Piece(Delta("b", 6));
  const auto end = answer.Piece(Finished(v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(end->outputs().finish_info().num_output_tokens(), 2u);
  EXPECT_EQ(end->outputs().finish_info().finish_reason(), ::vllm::FinishInfo::LENGTH);
}

TEST(VllmAnswerTest, InOnePieceOnlyWhatIsAskedFor) {
  Answer answer({.text = false});
  answer.Add(Started());
  answer.Add(Delta("a", 5));
  answer.Add(Delta("b", 6));
  answer.Add(Finished(v1::FINISH_REASON_CONTENT_FILTER));
  const ::vllm::SequenceOutput& output = answer.whole().outputs();
  EXPECT_TRUE(output.text().empty());
  EXPECT_TRUE(output.token_ids().empty() && output.logprobs().empty() && output.candidate_tokens().empty());
  EXPECT_EQ(output.num_tokens(), 2u);
  EXPECT_EQ(answer.whole().prompt_info().num_prompt_tokens(), 4u);
  EXPECT_EQ(output.finish_info().finish_reason(), ::vllm::FinishInfo::STOP);
}

TEST(VllmAnswerTest, WhatStoppedItIsTold) {
  const auto end = [](v1::FinishReason reason, int32_t token, const std::string& text) {
    v1::GenerateResponse response = Finished(reason);
    response.mutable_finished()->set_stop_match(text);
    if (token >= 0) response.mutable_finished()->set_stop_token_id(token);
    Answer answer({.stops = {9}});
    return answer.Piece(response)->outputs().finish_info();
  };
  EXPECT_EQ(end(v1::FINISH_REASON_STOP_STRING, -1, "x").stop_string(), "x");
  EXPECT_EQ(end(v1::FINISH_REASON_STOP_TOKEN, 9, "").stop_token_id(), 9u);
  EXPECT_EQ(end(v1::FINISH_REASON_STOP_TOKEN, 2, "").eos_token_id(), 2u);
}

TEST(VllmAnswerTest, AnAnswerThatIsEndedFromElsewhereSaysSo) {
  Answer whole({}), none({});
  whole.Add(Started());
  whole.Add(Delta("a", 5));
  const ::vllm::GenerateResponse ended = whole.Aborted();
  EXPECT_EQ(ended.outputs().text(), "a");
  EXPECT_EQ(ended.outputs().finish_info().finish_reason(), ::vllm::FinishInfo::ABORTED);
  EXPECT_EQ(ended.outputs().finish_info().num_output_tokens(), 1u);
  EXPECT_TRUE(none.Aborted().has_prompt_info()) << "before its first token";
}

}  // namespace
}  // namespace baton::router::vllm
