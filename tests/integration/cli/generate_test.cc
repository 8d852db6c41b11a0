// `baton generate` against a scripted server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>

#include "tests/fakes/fake_inference.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using fakes::Script;
using ::testing::HasSubstr;

TEST(GenerateTest, StreamsTheAnswerAndSendsOnlyWhatWasGiven) {
  FakeInference server;
  const Outcome outcome =
      RunBaton({"generate", "--server", server.address(), "--prompt", "hello", "--max-tokens", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "t0 t1 t2 \n");
  const std::vector<v1::GenerateRequest> requests = server.generate_requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].text(), "hello");
  EXPECT_FALSE(requests[0].sampling().has_temperature());
  EXPECT_FALSE(requests[0].sampling().has_seed());
  EXPECT_EQ(requests[0].stop().max_tokens(), 3u);
}

TEST(GenerateTest, SendsEveryFlag) {
  FakeInference server;
  const Outcome outcome = RunBaton({"generate",
                                    "--server",
                                    server.address(),
                                    "--token-ids",
                                    "5,6,7",
                                    "-m",
                                    "2",
                                    "--temperature",
                                    "0",
                                    "--top-p",
                                    "0.5",
                                    "--top-k",
                                    "9",
                                    "--min-p",
                                    "0.1",
                                    "--seed",
                                    "18446744073709551615",
                                    "--stop",
                                    "a",
                                    "--stop",
                                    "b",
                                    "--stop-token-ids",
                                    "1,2",
                                    "--ignore-eos",
                                    "--ids-out",
                                    "--model-name",
                                    "m",
                                    "--logprobs",
                                    "4"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "0,1\n");
  const v1::GenerateRequest request = server.generate_requests().at(0);
  EXPECT_THAT(request.token_ids().ids(), ::testing::ElementsAre(5, 6, 7));
  EXPECT_TRUE(request.sampling().has_temperature());
  EXPECT_EQ(request.sampling().temperature(), 0);
  EXPECT_EQ(request.sampling().top_p(), 0.5f);
  EXPECT_EQ(request.sampling().top_k(), 9);
  EXPECT_EQ(request.sampling().min_p(), 0.1f);
  EXPECT_EQ(request.sampling().seed(), UINT64_MAX);
  EXPECT_THAT(request.stop().stop(), ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(request.stop().stop_token_ids(), ::testing::ElementsAre(1, 2));
  EXPECT_TRUE(request.stop().ignore_eos());
  EXPECT_EQ(request.model(), "m");
  EXPECT_TRUE(request.output().logprobs());
  EXPECT_EQ(request.output().top_logprobs(), 4u);
}

TEST(GenerateTest, HowItIsDraftedIsSentOnlyIfSaid) {
  FakeInference server;
  const std::vector<std::string> plain = {"generate", "--server", server.address(), "-p", "x", "-m", "1"};
  std::vector<std::string> drafted = plain;
  drafted.insert(drafted.end(), {"--speculation", "ngram", "--even-frames"});
  EXPECT_EQ(RunBaton(plain).code, 0);
  EXPECT_EQ(RunBaton(drafted).code, 0);
  const std::vector<v1::GenerateRequest> requests = server.generate_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].options().speculation(), v1::SPECULATION_UNSPECIFIED);
  EXPECT_FALSE(requests[0].output().even_frames());
  EXPECT_EQ(requests[1].options().speculation(), v1::SPECULATION_NGRAM);
  EXPECT_TRUE(requests[1].output().even_frames());
}

TEST(GenerateTest, ReadsThePromptFromAPipe) {
  FakeInference server;
  const Outcome outcome = RunBaton({"generate", "--server", server.address(), "-m", "1"}, "two\nlines\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(server.generate_requests().at(0).text(), "two\nlines\n");
}

TEST(GenerateTest, JsonHasEverything) {
  FakeInference server;
  const Outcome outcome =
      RunBaton({"generate", "--server", server.address(), "-p", "x", "-m", "2", "--json", "--digest"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["seed"], 42);
  EXPECT_EQ(json["prompt_tokens"], 1);
  EXPECT_EQ(json["choices"][0]["text"], "t0 t1 ");
  EXPECT_EQ(json["choices"][0]["token_ids"], nlohmann::json::array({0, 1}));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][0]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(json["choices"][0]["relay"]["link"], "host");
  EXPECT_EQ(json["logits_digest"].get<std::string>().size(), 8u);
  EXPECT_TRUE(server.generate_requests().at(0).output().logits_digest());
}

// Choice 1 of `tokens`, its events in between those of choice 0.
Script TwoChoices(const std::vector<int32_t>& first, const std::vector<int32_t>& second) {
  Script script = AnswerWith(first, 1);
  size_t at = 2;
  for (Script::Step step : AnswerWith(second, 1).steps) {
    if (step.event.has_started()) continue;
    if (step.event.has_delta()) step.event.mutable_delta()->set_choice(1);
    if (step.event.has_finished()) step.event.mutable_finished()->set_choice(1);
    script.steps.insert(script.steps.begin() + static_cast<std::ptrdiff_t>(at), step);
    at += 2;
  }
  return script;
}

TEST(GenerateTest, SeveralChoicesDoNotMix) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) { return TwoChoices({1, 2}, {3}); }});
  const Outcome outcome = RunBaton({"generate", "--server", server.address(), "-p", "x", "--n", "2"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "[0] t1 t2 \n[1] t3 \n");
  EXPECT_EQ(server.generate_requests().at(0).options().n(), 2u);
}

TEST(GenerateTest, AStreamThatGoesOnAfterItsEndIsNamed) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) {
    Script script = AnswerWith({1, 2}, 1);
    std::swap(script.steps[2], script.steps[3]);
    return script;
  }});
  const Outcome outcome = RunBaton({"generate", "--server", server.address(), "-p", "x"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("choice 0 continues after its end"));
}

TEST(GenerateTest, ShowsWhatHappened) {
  FakeInference server;
  const Outcome outcome =
      RunBaton({"generate", "--server", server.address(), "-p", "x", "-m", "2", "--show-timing"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "t0 t1 \n") << "the table must not mix with the answer";
  EXPECT_THAT(outcome.err, HasSubstr("TTFT"));
  EXPECT_THAT(outcome.err, HasSubstr("fake-prefill -> fake-decode over \"host\""));
}

TEST(GenerateTest, AnErrorMidStreamIsAnErrorAfterWhatCame) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) {
    Script script = AnswerWith({1, 2, 3}, 1);
    script.steps.resize(2);
    script.end = absl::UnavailableError("the decode worker is gone; try again");
    return script;
  }});
  const Outcome outcome = RunBaton({"generate", "--server", server.address(), "-p", "x"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "t1 \n");
  EXPECT_THAT(outcome.err, HasSubstr("the decode worker is gone; try again"));
}

TEST(GenerateTest, AStreamThatEndsWithoutFinishedIsNotAnAnswer) {
  FakeInference server({.generate = [](const v1::GenerateRequest&) {
    Script script = AnswerWith({1}, 1);
    script.steps.resize(2);
    return script;
  }});
  const Outcome outcome = RunBaton({"generate", "--server", server.address(), "-p", "x"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("choice 0 has no end"));
}

TEST(GenerateTest, ADeadlineEndsASilentServer) {
  FakeInference server(
      {.generate = [](const v1::GenerateRequest&) { return AnswerWith({1}, 1, absl::InfiniteDuration()); }});
  const Outcome outcome =
      RunBaton({"generate", "--server", server.address(), "-p", "x", "--timeout", "200ms"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("in time"));
  EXPECT_TRUE(server.WaitForCancelled(1));
}

TEST(GenerateTest, MisuseIsTwo) {
  EXPECT_EQ(RunBaton({"generate", "--prompt", "a", "--token-ids", "1"}).code, 2);
  EXPECT_EQ(RunBaton({"generate", "--prompt", "a", "--server", "x", "--model", "y"}).code, 2);
  EXPECT_EQ(RunBaton({"generate", "--prompt", "a", "--server", "host:99999"}).code, 2);
  EXPECT_EQ(RunBaton({"generate", "--prompt", "a", "--timeout", "soon"}).code, 2);
  EXPECT_EQ(RunBaton({"generate", "--no-such-flag"}).code, 2);
  EXPECT_EQ(RunBaton({"no-such-command"}).code, 2);
  EXPECT_EQ(RunBaton({}).code, 2);
  EXPECT_EQ(RunBaton({"generate", "--help"}).code, 0);
}

}  // namespace
}  // namespace baton::cli
