#include "gateway/mapping/moderation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/mapping/anthropic_answer.h"
#include "gateway/mapping/openai_answer.h"
#include "gateway/mapping/openai_request.h"
#include "gateway/mapping/usage.h"
#include "tests/unit/gateway/events.h"

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ModerateRequest ReadTexts(const std::string& body) {
  auto read = ReadModerations(Json::parse(body));
  EXPECT_TRUE(read.ok()) << read.status() << "\n" << body;
  return read.ok() ? *read : v1::ModerateRequest{};
}

TEST(ModerationTest, TextsAndTheClassifiersName) {
  EXPECT_THAT(ReadTexts(R"({"input": "a"})").texts(), ElementsAre("a"));
  EXPECT_THAT(ReadTexts(R"({"input": ["a", "b"]})").texts(), ElementsAre("a", "b"));
  EXPECT_THAT(
      ReadTexts(R"({"input": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})").texts(),
      ElementsAre("ab"));
  EXPECT_EQ(ReadTexts(R"({"input": "a", "model": "guard"})").model(), "guard");
  for (const char* const theirs : {"omni-moderation-latest", "text-moderation-stable"}) {
    EXPECT_EQ(ReadTexts(R"({"input": "a", "model": ")" + std::string(theirs) + "\"}").model(), "");
  }
  const std::pair<const char*, const char*> wrong[] = {
      {R"({})", "input: absent"},
      {R"({"input": 7})", "input: neither"},
      {R"({"input": []})", "input: neither"},
      {R"({"input": ["a", 7]})", "input: neither"},
      {R"({"input": [{"type": "image_url", "image_url": {}}]})", "input[0].type: only texts"},
      {R"({"input": "a", "model": 7})", "model: not a text"}};
  for (const auto& [body, words] : wrong) {
    EXPECT_THAT(ReadModerations(Json::parse(body)).status().message(), HasSubstr(words));
  }
}

TEST(ModerationTest, VerdictsHaveTheCategoriesThatClientsKnow) {
  v1::ModerateResponse answer;
  answer.set_model("guard");
  v1::ModerationResult& result = *answer.add_results();
  result.set_flagged(true);
  for (const auto& [name, score] : {std::pair("violence", 0.75f), std::pair("weapons", 0.25f)}) {
    v1::ModerationCategory& category = *result.add_categories();
    category.set_name(name);
    category.set_score(score);
  }
  answer.add_results();
  const Json json = ModerationsJson(answer, "modr-1");
  EXPECT_EQ(json["id"], "modr-1");
  EXPECT_EQ(json["model"], "guard");
  const Json& bad = json["results"][0];
  EXPECT_EQ(bad["flagged"], true);
  EXPECT_EQ(bad["categories"]["violence"], true);
  EXPECT_EQ(bad["category_scores"]["violence"], 0.75);
  EXPECT_EQ(bad["categories"]["weapons"], false);
  EXPECT_EQ(bad["category_scores"]["weapons"], 0.25);
  EXPECT_EQ(bad["categories"]["harassment/threatening"], false);
  EXPECT_EQ(bad["category_applied_input_types"]["violence"].dump(), R"(["text"])");
  EXPECT_EQ(json["results"][1]["flagged"], false);
  EXPECT_EQ(json["results"][1]["categories"].size(), 13u);
}

absl::StatusOr<OpenAiChat> Asked(const std::string& moderation) {
  return ReadOpenAiChat(
      Json::parse(R"({"messages": [{"role": "user", "content": "hi"}], "moderation": )" + moderation + "}"));
}

TEST(ModerationTest, AnAnswerMayBeModerated) {
  const auto wanted = [](const std::string& moderation) {
    const auto chat = Asked(moderation);
    EXPECT_TRUE(chat.ok()) << chat.status();
    return chat.ok() ? chat->request.options().moderation() : v1::Moderation{};
  };
  const v1::Moderation scored = wanted(R"({"model": "omni-moderation-latest"})");
  EXPECT_EQ(scored.policy(), v1::Moderation::POLICY_SCORE);
  EXPECT_EQ(scored.model(), "");
  EXPECT_FALSE(scored.input());
  const v1::Moderation blocked =
      wanted(R"({"model": "guard", "policy": {"input": {"mode": "block"}, "output": {"mode": "block"}}})");
  EXPECT_EQ(blocked.policy(), v1::Moderation::POLICY_BLOCK);
  EXPECT_EQ(blocked.model(), "guard");
  EXPECT_TRUE(blocked.input());
  EXPECT_FALSE(wanted(R"({"model": "g", "policy": {"output": {"mode": "block"}}})").input());
  EXPECT_THAT(Asked(R"({"model": "g", "policy": {"input": {"mode": "block"}}})").status().message(),
              HasSubstr("moderation.policy.input: "));
  EXPECT_THAT(Asked(R"({"model": "g", "policy": {"output": {"mode": "ask"}}})").status().message(),
              HasSubstr("moderation.policy.output.mode: "));
  EXPECT_FALSE(Asked("null")->request.options().has_moderation());
}

TEST(ModerationTest, ABlockedAnswerSaysSoInBothVendorsWords) {
  v1::GenerateResponse blocked = FinishedEvent(v1::FINISH_REASON_CONTENT_FILTER);
  blocked.mutable_finished()->mutable_moderation()->set_flagged(true);
  protocol::AnswerFold answer;
  OpenAiChunks chunks(OpenAiKind::kChat, 1, {});
  std::string stream;
  for (const v1::GenerateResponse& event : {StartedEvent(), TextEvent("a"), blocked}) {
    answer.Add(event);
    stream += chunks.Add(event);
  }
  const v1::Usage usage;
  const Json whole = OpenAiWhole(OpenAiKind::kChat, answer, usage, 1, {});
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "content_filter");
  EXPECT_EQ(whole["moderation"]["output"]["results"][0]["flagged"], true);
  EXPECT_EQ(whole["moderation"]["input"], nullptr);
  EXPECT_THAT(stream, HasSubstr(R"("finish_reason":"content_filter")"));
  EXPECT_THAT(stream, HasSubstr(R"("moderation":{"input":null,"output":{"type":"moderation_results")"));
  const Json message = AnthropicWhole(answer, usage, {});
  EXPECT_EQ(message["stop_reason"], "refusal");
  EXPECT_EQ(message["moderation"], whole["moderation"]);
  blocked.mutable_finished()->mutable_moderation()->set_unavailable(true);
  EXPECT_EQ(ModerationJson(blocked.finished())["output"]["results"][0]["flagged"], true)
      << "one window was flagged, and another one not judged";
  blocked.mutable_finished()->mutable_moderation()->set_flagged(false);
  EXPECT_EQ(ModerationJson(blocked.finished())["output"]["type"], "error");
  EXPECT_TRUE(ModerationJson(FinishedEvent(v1::FINISH_REASON_STOP_TOKEN).finished()).is_null());
}

}  // namespace
}  // namespace baton::gateway
