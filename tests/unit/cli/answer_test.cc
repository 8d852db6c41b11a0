#include "cli/chat/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

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

Answer Of(const std::vector<v1::GenerateResponse>& events) {
  Answer answer;
  for (const v1::GenerateResponse& event : events) answer.Take(event);
  return answer;
}

TEST(AnswerTest, PutsChoicesTogether) {
  const Answer answer =
      Of({Started(), Delta(1, "b"), Delta(0, "a"), Delta(1, "B"), Finished(1), Delta(0, "A"), Finished(0)});
  EXPECT_TRUE(answer.CheckComplete().ok());
  ASSERT_EQ(answer.choices().size(), 2u);
  EXPECT_EQ(answer.choices()[0].text, "aA");
  EXPECT_EQ(answer.choices()[1].text, "bB");
  const nlohmann::json json = answer.ToJson();
  EXPECT_EQ(json["choices"][1]["text"], "bB");
  EXPECT_EQ(json["choices"][1]["finish_reason"], "stop_token");
  EXPECT_EQ(json["choices"][1]["stop_token_id"], 2);
}

TEST(AnswerTest, NamesWhatIsWrongWithAStream) {
  const auto error = [](const std::vector<v1::GenerateResponse>& events) {
    return std::string(Of(events).CheckComplete().message());
  };
  EXPECT_THAT(error({}), HasSubstr("no events"));
  EXPECT_THAT(error({Started()}), HasSubstr("no answer"));
  EXPECT_THAT(error({Delta(0, "a"), Finished(0)}), HasSubstr("first event is not Started"));
  EXPECT_THAT(error({Started(), Started(), Finished(0)}), HasSubstr("started twice"));
  EXPECT_THAT(error({Started(), Delta(0, "a")}), HasSubstr("choice 0 has no end"));
  EXPECT_THAT(error({Started(), Finished(1)}), HasSubstr("choice 0 has no end"));
  EXPECT_THAT(error({Started(), Finished(0), Finished(0)}), HasSubstr("ended twice"));
  EXPECT_THAT(error({Started(), Finished(0), Delta(0, "a")}), HasSubstr("continues after its end"));
  EXPECT_THAT(error({Started(), Finished(4'000'000'000u)}), HasSubstr("names choice 4000000000"));
}

TEST(AnswerTest, TheDigestDependsOnEveryStepAndItsPlace) {
  const uint32_t digest = Of({Started(), Delta(0, "a"), Delta(0, "bb"), Finished(0)}).LogitsDigest();
  EXPECT_EQ(Of({Started(), Delta(0, "x"), Delta(0, "yy"), Finished(0)}).LogitsDigest(), digest);
  EXPECT_NE(Of({Started(), Delta(0, "bb"), Delta(0, "a"), Finished(0)}).LogitsDigest(), digest);
  EXPECT_NE(Of({Started(), Delta(0, "a"), Finished(0)}).LogitsDigest(), digest);
}

TEST(AnswerTest, BytesThatAreNoTextAreNumbersInJson) {
  Answer answer;
  v1::GenerateResponse event = Delta(0, "");
  v1::StepLogprobs& step = *event.mutable_delta()->add_logprobs();
  step.mutable_chosen()->set_bytes("\xE2\x82");
  step.add_top()->set_logprob(-0.5f);
  answer.Take(Started());
  answer.Take(event);
  const nlohmann::json json = answer.ToJson();
  EXPECT_EQ(json["choices"][0]["logprobs"][0]["bytes"], nlohmann::json::array({0xE2, 0x82}));
  EXPECT_EQ(json["choices"][0]["logprobs"][0]["top"][0]["logprob"], -0.5);
}

}  // namespace
}  // namespace baton::cli
