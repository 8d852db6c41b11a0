#include "protocol/client/answer_fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/seed.h"

namespace baton::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::PartEvent Start(uint32_t part, v1::PartStart::Kind kind, const std::string& name = "") {
  v1::PartEvent event;
  event.set_part(part);
  event.mutable_start()->set_kind(kind);
  if (!name.empty()) event.mutable_start()->set_id("id-" + name);
  event.mutable_start()->set_name(name);
  return event;
}

v1::PartEvent Fragment(uint32_t part, const std::string& text, bool arguments = false) {
  v1::PartEvent event;
  event.set_part(part);
  arguments ? event.set_arguments_json(text) : event.set_text(text);
  return event;
}

v1::PartEvent End(uint32_t part, bool complete = true) {
  v1::PartEvent event;
  event.set_part(part);
  event.mutable_end()->set_complete(complete);
  return event;
}

const std::vector<v1::PartEvent>& Events() {
  static const auto* events = new std::vector<v1::PartEvent>{Start(0, v1::PartStart::KIND_THINKING),
                                                             Fragment(0, "hm, "),
                                                             Fragment(0, "so"),
                                                             End(0),
                                                             Start(1, v1::PartStart::KIND_TEXT),
                                                             Fragment(1, "I "),
                                                             Fragment(1, "look."),
                                                             End(1),
                                                             Start(2, v1::PartStart::KIND_TOOL_CALL, "f"),
                                                             Fragment(2, "{\"a\":", true),
                                                             Fragment(2, "1}", true),
                                                             End(2),
                                                             Start(3, v1::PartStart::KIND_TOOL_CALL, "g"),
                                                             Fragment(3, "{\"b", true),
                                                             End(3, false)};
  return *events;
}

TEST(AnswerFoldTest, TracesOfAllDeltasAreTheChoices) {
  AnswerFold fold;
  for (const int token : {3, 4}) {
    v1::GenerateResponse response;
    response.mutable_delta()->set_choice(1);
    response.mutable_delta()->add_sampling()->set_token_id(token);
    fold.Add(response);
  }
  const v1::AnswerChoice& choice = fold.answer().choices(1);
  ASSERT_EQ(choice.sampling_size(), 2);
  EXPECT_EQ(choice.sampling(1).token_id(), 4);
  EXPECT_TRUE(fold.answer().choices(0).sampling().empty());
}

TEST(AnswerFoldTest, PartsBecomeWhole) {
  AnswerFold fold;
  v1::GenerateResponse response;
  response.mutable_started()->set_request_id("r");
  fold.Add(response);
  *response.mutable_delta()->mutable_parts() = {Events().begin(), Events().end()};
  response.mutable_delta()->set_text("I look.");
  fold.Add(response);
  v1::Finished* finished = response.mutable_finished();
  finished->set_reason(v1::FINISH_REASON_LENGTH);
  fold.Add(response);
  const v1::ChatUnaryResponse& answer = fold.answer();
  EXPECT_EQ(answer.started().request_id(), "r");
  ASSERT_EQ(answer.choices_size(), 1);
  const v1::AnswerChoice& choice = answer.choices(0);
  EXPECT_EQ(choice.text(), "I look.");
  ASSERT_EQ(choice.parts_size(), 4);
  EXPECT_EQ(choice.parts(0).thinking(), "hm, so");
  EXPECT_EQ(choice.parts(1).text(), "I look.");
  EXPECT_EQ(choice.parts(2).tool_call().name(), "f");
  EXPECT_EQ(choice.parts(2).tool_call().id(), "id-f");
  EXPECT_EQ(choice.parts(2).tool_call().arguments_json(), "{\"a\":1}");
  EXPECT_TRUE(choice.parts(2).complete());
  EXPECT_EQ(choice.parts(3).tool_call().arguments_json(), "{\"b");
  EXPECT_FALSE(choice.parts(3).complete());
  EXPECT_EQ(choice.finished().reason(), v1::FINISH_REASON_LENGTH);
}

// Any number of choices, their deltas in any order between one another and cut anywhere: the same answers.
TEST(AnswerFoldTest, AnyChunkingGivesTheSameAnswer) {
  const uint64_t seed = TestSeed();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  AnswerFold one;
  for (uint32_t choice = 0; choice < 3; ++choice) {
    v1::GenerateResponse response;
    response.mutable_delta()->set_choice(choice);
    response.mutable_delta()->set_text("I look.");
    for (int32_t i = 0; i < 9; ++i) response.mutable_delta()->add_token_ids(i);
    *response.mutable_delta()->mutable_parts() = {Events().begin(), Events().end()};
    one.Add(response);
  }
  for (int round = 0; round < 100; ++round) {
    AnswerFold fold;
    std::vector<size_t> events(3), letters(3), tokens(3);
    const std::string text = "I look.";
    for (size_t choice = 0;
         events[choice] < Events().size() || letters[choice] < text.size() || tokens[choice] < 9;) {
      v1::GenerateResponse response;
      v1::Delta& delta = *response.mutable_delta();
      delta.set_choice(static_cast<uint32_t>(choice));
      for (size_t n = random() % 4; n > 0 && events[choice] < Events().size(); --n) {
        *delta.add_parts() = Events()[events[choice]++];
      }
      for (size_t n = random() % 4; n > 0 && letters[choice] < text.size(); --n) {
        delta.mutable_text()->push_back(text[letters[choice]++]);
      }
      for (size_t n = random() % 4; n > 0 && tokens[choice] < 9; --n) {
        delta.add_token_ids(static_cast<int32_t>(tokens[choice]++));
      }
      fold.Add(response);
      // Another choice that has not ended, or this one.
      for (size_t other = random() % 3, i = 0; i < 3; ++i, other = (other + 1) % 3) {
        if (events[other] == Events().size() && letters[other] == text.size() && tokens[other] == 9) continue;
        choice = other;
        break;
      }
    }
    EXPECT_EQ(fold.answer().SerializeAsString(), one.answer().SerializeAsString());
  }
}

v1::GenerateResponse StartedEvent() {
  v1::GenerateResponse event;
  event.mutable_started()->set_request_id("r");
  return event;
}

v1::GenerateResponse DeltaOf(uint32_t choice) {
  v1::GenerateResponse event;
  event.mutable_delta()->set_choice(choice);
  event.mutable_delta()->set_text("a");
  return event;
}

v1::GenerateResponse FinishedOf(uint32_t choice) {
  v1::GenerateResponse event;
  event.mutable_finished()->set_choice(choice);
  return event;
}

TEST(AnswerFoldTest, NamesThePromiseThatAStreamBroke) {
  const auto error = [](const std::vector<v1::GenerateResponse>& events) {
    AnswerFold fold(/*most=*/3);
    for (const v1::GenerateResponse& event : events) fold.Add(event);
    return std::string(fold.CheckWhole().message());
  };
  EXPECT_EQ(error({StartedEvent(), DeltaOf(2), FinishedOf(1), DeltaOf(0), FinishedOf(0), FinishedOf(2)}), "");
  EXPECT_THAT(error({}), HasSubstr("it has no events"));
  EXPECT_THAT(error({StartedEvent()}), HasSubstr("it has 0 of 1 choices"));
  EXPECT_THAT(error({DeltaOf(0), FinishedOf(0)}), HasSubstr("first event is not Started"));
  EXPECT_THAT(error({StartedEvent(), StartedEvent(), FinishedOf(0)}), HasSubstr("started twice"));
  EXPECT_THAT(error({StartedEvent(), DeltaOf(0)}), HasSubstr("choice 0 has no end"));
  EXPECT_THAT(error({StartedEvent(), FinishedOf(1)}), HasSubstr("choice 0 has no end"));
  EXPECT_THAT(error({StartedEvent(), FinishedOf(0), FinishedOf(0)}), HasSubstr("choice 0 ended twice"));
  EXPECT_THAT(error({StartedEvent(), FinishedOf(0), DeltaOf(0)}),
              HasSubstr("choice 0 continues after its end"));
  EXPECT_THAT(error({StartedEvent(), FinishedOf(0), FinishedOf(3)}), HasSubstr("it names choice 3 of 3"));
  EXPECT_THAT(error({StartedEvent(), FinishedOf(0), DeltaOf(4'000'000'000u)}),
              HasSubstr("it names choice 4000000000 of 3"));
}

TEST(AnswerFoldTest, APartSaysHowItBegan) {
  AnswerFold fold;
  v1::GenerateResponse event;
  for (const v1::PartEvent& part : Events()) *event.mutable_delta()->add_parts() = part;
  fold.Add(event);
  std::vector<std::string> starts, texts;
  for (const v1::AnswerPart& part : fold.choices()[0].parts()) {
    starts.push_back(StartOf(part).SerializeAsString());
    texts.push_back(TextOf(part));
  }
  std::vector<std::string> sent;
  for (const v1::PartEvent& part : Events()) {
    if (part.has_start()) sent.push_back(part.start().SerializeAsString());
  }
  EXPECT_EQ(starts, sent);
  EXPECT_THAT(texts, ElementsAre("hm, so", "I look.", "{\"a\":1}", "{\"b"));
}

}  // namespace
}  // namespace baton::protocol
