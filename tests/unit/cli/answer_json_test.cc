#include "cli/chat/answer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "protocol/client/answer_fold.h"

namespace baton::cli {
namespace {

v1::GenerateResponse Started() {
  v1::GenerateResponse event;
  event.mutable_started()->set_request_id("r");
  return event;
}

v1::GenerateResponse Delta(uint32_t choice, const std::string& text) {
  v1::GenerateResponse event;
  event.mutable_delta()->set_choice(choice);
  event.mutable_delta()->set_text(text);
  event.mutable_delta()->add_logits_digests(choice + static_cast<uint32_t>(text.size()));
  return event;
}

v1::GenerateResponse Finished(uint32_t choice) {
  v1::GenerateResponse event;
  event.mutable_finished()->set_choice(choice);
  event.mutable_finished()->set_reason(v1::FINISH_REASON_STOP_TOKEN);
  event.mutable_finished()->set_stop_token_id(2);
  return event;
}

protocol::AnswerFold Of(const std::vector<v1::GenerateResponse>& events) {
  protocol::AnswerFold answer;
  for (const v1::GenerateResponse& event : events) answer.Add(event);
  return answer;
}

TEST(AnswerJsonTest, PutsChoicesTogether) {
  const protocol::AnswerFold answer =
      Of({Started(), Delta(1, "b"), Delta(0, "a"), Delta(1, "B"), Finished(1), Delta(0, "A"), Finished(0)});
  EXPECT_TRUE(answer.CheckWhole().ok());
  ASSERT_EQ(answer.choices().size(), 2);
  EXPECT_EQ(answer.choices()[0].text(), "aA");
  EXPECT_EQ(answer.choices()[1].text(), "bB");
  const nlohmann::json json = AnswerJson(answer.answer());
  EXPECT_EQ(json["choices"][1]["text"], "bB");
  EXPECT_EQ(json["choices"][1]["finish_reason"], "stop_token");
  EXPECT_EQ(json["choices"][1]["stop_token_id"], 2);
}

TEST(AnswerJsonTest, TheDigestDependsOnEveryStepAndItsPlace) {
  const uint32_t digest = LogitsDigest(Of({Started(), Delta(0, "a"), Delta(0, "bb"), Finished(0)}).answer());
  EXPECT_EQ(LogitsDigest(Of({Started(), Delta(0, "x"), Delta(0, "yy"), Finished(0)}).answer()), digest);
  EXPECT_NE(LogitsDigest(Of({Started(), Delta(0, "bb"), Delta(0, "a"), Finished(0)}).answer()), digest);
  EXPECT_NE(LogitsDigest(Of({Started(), Delta(0, "a"), Finished(0)}).answer()), digest);
}

TEST(AnswerJsonTest, BytesThatAreNoTextAreNumbersInJson) {
  protocol::AnswerFold answer;
  v1::GenerateResponse event = Delta(0, "");
  v1::StepLogprobs& step = *event.mutable_delta()->add_logprobs();
  step.mutable_chosen()->set_bytes("\xE2\x82");
  step.add_top()->set_logprob(-0.5f);
  answer.Add(Started());
  answer.Add(event);
  const nlohmann::json json = AnswerJson(answer.answer());
  EXPECT_EQ(json["choices"][0]["logprobs"][0]["bytes"], nlohmann::json::array({0xE2, 0x82}));
  EXPECT_EQ(json["choices"][0]["logprobs"][0]["top"][0]["logprob"], -0.5);
}

}  // namespace
}  // namespace baton::cli
