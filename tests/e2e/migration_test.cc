// Decode workers that die, hang or leave in the middle of an answer: the router continues elsewhere, and the
// client's stream has neither gap nor repetition. Real signals on real processes, which their gates hold in
// the middle; every answer is compared with that of an undisturbed fleet, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "common/rpc/status.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

// Sampled, with everything that depends on what came before: penalties, stop strings, log probabilities.
v1::GenerateRequest Sampled(uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text("Once upon a time, in a house beside the river, there lived");
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.9f);
  sampling.set_top_p(0.95f);
  sampling.set_seed(77);
  sampling.set_repetition_penalty(1.15f);
  sampling.set_presence_penalty(0.3f);
  sampling.set_frequency_penalty(0.2f);
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_stop()->add_stop("this string does not come");
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_logits_digest(true);
  request.mutable_output()->set_logprobs(true);
  request.mutable_output()->set_top_logprobs(2);
  return request;
}

v1::GenerateRequest Greedy(uint32_t max_tokens) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 150; ++i) prompt.push_back(20 + i * 31 % 1990);
  return TokenRequest(prompt, max_tokens);
}

constexpr uint32_t kAnswer = 1200;
// A worker that makes so many steps has given kRead tokens at least, and not all of the answer.
constexpr int64_t kStepsUntilMove = 30;
constexpr size_t kRead = 20;
static_assert(kStepsUntilMove * kStepTokens < kAnswer);

// A client that reads on while the test disturbs the fleet.
struct Reading {
  Answer answer;
  std::vector<float> logprobs;

  void Take(const v1::GenerateResponse& response) {
    if (response.has_finished()) answer.finished.push_back(response.finished());
    const v1::Delta& delta = response.delta();
    answer.tokens.insert(answer.tokens.end(), delta.token_ids().begin(), delta.token_ids().end());
    answer.digests.insert(answer.digests.end(), delta.logits_digests().begin(), delta.logits_digests().end());
    answer.text += delta.text();
    for (const v1::StepLogprobs& step : delta.logprobs()) logprobs.push_back(step.chosen().logprob());
  }
};

Reading ReadAll(Fleet& fleet, const v1::GenerateRequest& request, size_t disturb_after,
                const std::function<void()>& disturb) {
  Reading reading;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(120)));
  const auto reader = fleet.stub().Generate(&context, request);
  bool disturbed = false;
  for (v1::GenerateResponse response; reader->Read(&response);) {
    reading.Take(response);
    if (!disturbed && reading.answer.tokens.size() >= disturb_after) {
      disturbed = true;
      disturb();
    }
  }
  reading.answer.status = rpc::FromGrpc(reader->Finish());
  return reading;
}

class MigrationTest : public testing::TestWithParam<const char*> {
 protected:
  static v1::GenerateRequest Request() {
    return std::string(GetParam()) == "greedy" ? Greedy(kAnswer) : Sampled(kAnswer);
  }
  // Sends `signal` to the worker that answers, in the middle of it.
  static void Disturb(int signal, const std::string& drain_grace = "20") {
    Fleet fleet({.prefill = 1,
                 .decode = 2,
                 .gated = true,
                 .drain_grace = drain_grace,
                 .keepalive = signal == SIGSTOP ? kQuickKeepalive : kPatientKeepalive});
    const Reading undisturbed = ReadAll(fleet, Request(), 1, [] {});
    ASSERT_TRUE(undisturbed.answer.status.ok()) << undisturbed.answer.status;
    ASSERT_EQ(undisturbed.answer.tokens.size(), kAnswer);
    EXPECT_EQ(undisturbed.answer.end().relay().migrations(), 0u);
    int victim = -1;
    std::chrono::steady_clock::time_point begin;
    fleet.decode_gates().Allow(kStepsUntilMove);
    const Reading reading = ReadAll(fleet, Request(), kRead, [&] {
      victim = fleet.LoseHeldDecode(signal);
      begin = std::chrono::steady_clock::now();
    });
    std::printf("answered %.2f s after the signal\n",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    ASSERT_TRUE(reading.answer.status.ok()) << reading.answer.status;
    EXPECT_EQ(reading.answer.tokens, undisturbed.answer.tokens);
    EXPECT_EQ(reading.answer.digests, undisturbed.answer.digests);
    EXPECT_EQ(reading.answer.text, undisturbed.answer.text);
    EXPECT_EQ(reading.logprobs, undisturbed.logprobs);
    const v1::Finished& end = reading.answer.end();
    EXPECT_EQ(end.relay().migrations(), 1u);
    EXPECT_EQ(end.relay().decode_worker(), "decode-" + std::to_string(1 - victim));
    EXPECT_EQ(end.usage().completion_tokens(), kAnswer);
    EXPECT_EQ(end.usage().prompt_tokens(), undisturbed.answer.end().usage().prompt_tokens());
    const v1::Timing& timing = end.timing();
    EXPECT_NEAR(timing.admit_seconds() + timing.decode_queue_seconds() + timing.prefill_queue_seconds() +
                    timing.prefill_seconds() + timing.transfer_seconds() + timing.first_token_seconds(),
                timing.ttft_seconds(), 1e-9);
    if (signal == SIGTERM) {
      EXPECT_EQ(fleet.decode(victim).Wait().value, 0);
    }
    EXPECT_TRUE(AwaitLoad(fleet.decode(1 - victim).grpc(),
                          [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
    EXPECT_TRUE(AwaitLoad(fleet.prefill().grpc(),
                          [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
  }
};

TEST_P(MigrationTest, AKilledWorkersAnswerGoesOnElsewhere) { Disturb(SIGKILL); }

// Keepalive has to notice.
TEST_P(MigrationTest, AHungWorkersAnswerGoesOnElsewhere) { Disturb(SIGSTOP); }

TEST_P(MigrationTest, ALeavingWorkersAnswerGoesOnElsewhereWhenItsGraceIsOver) { Disturb(SIGTERM, "0.05"); }

INSTANTIATE_TEST_SUITE_P(Sampling, MigrationTest, testing::Values("greedy", "sampled"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace baton::e2e
