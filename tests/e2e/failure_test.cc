// Processes that die, clients that leave, workers that drain: real signals on real processes, which their
// gates hold in the middle. Whatever happens, the client gets an answer or one canonical error, and every
// block is free again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/salted_prompt.h"

namespace baton::e2e {
namespace {

using testing::HasSubstr;

// After so many steps of its decode worker a client has more than twenty messages, and not all of an answer
// of kLong tokens.
constexpr int64_t kSteps = 30;
constexpr uint32_t kLong = 1900;
static_assert(kSteps * kStepTokens < kLong);

TEST(FailureTest, AClientThatLeavesMidStreamLeavesNothingBehind) {
  Fleet fleet({.gated = true});
  for (int tokens_read : {0, 1, 20}) {
    fleet.decode_gates().Allow(kSteps);
    grpc::ClientContext context;
    const auto reader = fleet.stub().Generate(&context, TokenRequest(SaltedPrompt(300, tokens_read), kLong));
    v1::GenerateResponse response;
    for (int read = 0; read < tokens_read; ++read) ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    fleet.decode_gates().Open();
    fleet.ExpectNothingHeld();
  }
}

TEST(FailureTest, ADeadlineEndsARequestEverywhere) {
  Fleet fleet({.gated = true});
  fleet.decode_gates().Allow(kSteps);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(150));
  const auto reader = fleet.stub().Generate(&context, TokenRequest(SaltedPrompt(300), kLong));
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  fleet.decode_gates().Open();
  fleet.ExpectNothingHeld();
}

// Sends `signal` to the prefill worker in the middle of a prompt. The answer is that of an undisturbed fleet.
void DisturbPrefill(int signal) {
  // One block at a time: 138 steps.
  // This policy always hands off; the default one may compute the prompt on the decode worker.
  Fleet fleet({.prefill = 1,
               .prefill_flags = {"--chunk-tokens", "16", "--token-budget", "16"},
               .router_flags = {"--policy", "round_robin"},
               .gated = true,
               .keepalive = signal == SIGSTOP ? kQuickKeepalive : kPatientKeepalive});
  const v1::GenerateRequest request = TokenRequest(SaltedPrompt(2200), 8);
  Answer undisturbed;
  {
    Fleet other;
    undisturbed = other.Generate(request);
    ASSERT_TRUE(undisturbed.status.ok()) << undisturbed.status;
  }
  fleet.prefill_gates().Allow(50);
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, request);
  ASSERT_TRUE(fleet.prefill_gates()[0].AwaitUsed());
  EXPECT_EQ(LoadOf(fleet.prefill()).queued_tokens(), 2200u - 50 * 16);
  fleet.prefill().Signal(signal);
  const auto begin = std::chrono::steady_clock::now();
  Answer answer;
  for (v1::GenerateResponse response; reader->Read(&response);) {
    if (response.has_finished()) answer.finished.push_back(response.finished());
    for (uint32_t digest : response.delta().logits_digests()) answer.digests.push_back(digest);
  }
  const grpc::Status status = reader->Finish();
  std::printf("answered %.2f s after the signal\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.digests, undisturbed.digests);
  EXPECT_EQ(answer.end().relay().failovers(), 1u);
  EXPECT_TRUE(
      AwaitLoad(fleet.decode().grpc(), [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
}

TEST(FailureTest, APrefillWorkerKilledMidPromptCostsNoRequestAndNoToken) { DisturbPrefill(SIGKILL); }

// It neither answers nor closes its connections: only keepalive can tell.
TEST(FailureTest, APrefillWorkerThatHangsMidPromptCostsNoRequestAndNoToken) { DisturbPrefill(SIGSTOP); }

TEST(FailureTest, ADecodeWorkerKilledMidAnswerIsAClearError) {
  // None comes in its place, and a request waits only so long for one.
  Fleet fleet({.prefill = 1, .decode = 1, .router_flags = {"--queue-seconds", "0.5"}, .gated = true});
  fleet.decode_gates().Allow(kSteps);
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, TokenRequest(SaltedPrompt(100), kLong));
  v1::GenerateResponse response;
  for (int read = 0; read < 5; ++read) ASSERT_TRUE(reader->Read(&response));
  fleet.decode().Signal(SIGKILL);
  while (reader->Read(&response)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("decode-0"));
  EXPECT_TRUE(
      AwaitLoad(fleet.prefill().grpc(), [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
}

// Its log names the workers that it looks for; callers do not hear of them.
TEST(FailureTest, WithoutAnyWorkerTheCallerHearsSoAndNoAddress) {
  Process router("baton-router", {"--model", kModel, "--decode", "127.0.0.1:9", "--log-level", "off"});
  const auto stub =
      v1::Inference::NewStub(grpc::CreateChannel(router.grpc(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, TokenRequest({30, 31}, 3));
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("no decode worker is up"));
  EXPECT_THAT(status.error_message(), testing::Not(HasSubstr("127.0.0.1:9")));
  EXPECT_EQ(rpc::ReasonOf(rpc::FromGrpc(status)), "NO_WORKER");
  router.Signal(SIGTERM);
  EXPECT_EQ(router.Wait().value, 0);
}

TEST(FailureTest, APrefillWorkerOfAnotherKindIsNotUsedAndTheRequestCompletes) {
  Fleet fleet({.prefill_flags = {"--key-dtype", "f32"}, .impatient = true});
  const Answer answer = fleet.Generate(TokenRequest(SaltedPrompt(200), 4));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.end().relay().link(), "local");
  fleet.ExpectNothingHeld();
}

TEST(FailureTest, DrainRefusesNewWorkAndAnswersWhenTheRunningWorkHasEnded) {
  Fleet fleet({.router_flags = {"--queue-seconds", "0.2"}, .gated = true});
  fleet.decode_gates().Allow(kSteps);
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, TokenRequest(SaltedPrompt(100), 1000));
  v1::GenerateResponse response;
  for (int read = 0; read < 5; ++read) ASSERT_TRUE(reader->Read(&response));
  const auto worker = fleet::v1::Worker::NewStub(rpc::MakeChannel(fleet.decode().grpc()));
  fleet::v1::DrainRequest drain;
  fleet::v1::DrainResponse drained;
  {
    grpc::ClientContext call;
    drain.set_grace_seconds(0.001);
    ASSERT_TRUE(worker->Drain(&call, drain, &drained).ok());
    EXPECT_EQ(drained.abandoned(), 1u) << "it was still running";
  }
  EXPECT_EQ(fleet.Generate(TokenRequest(SaltedPrompt(50), 3)).status.code(), absl::StatusCode::kUnavailable);
  grpc::ClientContext call;
  drain.set_grace_seconds(100);
  std::thread waiter([&] { EXPECT_TRUE(worker->Drain(&call, drain, &drained).ok()); });
  fleet.decode_gates().Open();
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  waiter.join();
  EXPECT_EQ(drained.abandoned(), 0u);
  grpc::ClientContext bad;
  drain.set_grace_seconds(-1);
  EXPECT_EQ(worker->Drain(&bad, drain, &drained).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(FailureTest, AWorkerThatNeverHadWorkLeavesAtOnce) {
  for (const char* program : {"baton-decode", "baton-prefill"}) {
    // Waits at most two minutes: a worker that sits out its grace fails here.
    Process worker(program, {"--model", kModel, "--log-level", "off", "--drain-seconds", "1000"});
    worker.Signal(SIGTERM);
    EXPECT_EQ(worker.Wait().value, 0);
  }
}

TEST(FailureTest, TermLetsRunningWorkEndAndLeavesWithZero) {
  Fleet fleet({.prefill = 1, .decode = 1, .gated = true, .drain_grace = kEndlessGrace});
  fleet.decode_gates().Allow(10);
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, TokenRequest(SaltedPrompt(100), 400));
  v1::GenerateResponse response;
  for (int read = 0; read < 5; ++read) ASSERT_TRUE(reader->Read(&response));
  fleet.decode().Signal(SIGTERM);
  fleet.prefill().Signal(SIGTERM);
  ASSERT_TRUE(AwaitDraining(fleet.decode()));
  fleet.decode_gates().Open();
  uint32_t completion = 0;
  while (reader->Read(&response)) {
    if (response.has_finished()) completion = response.finished().usage().completion_tokens();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(completion, 400u);
  const cli::ExitStatus decode = fleet.decode().Wait();
  EXPECT_FALSE(decode.signalled);
  EXPECT_EQ(decode.value, 0);
  EXPECT_EQ(fleet.prefill().Wait().value, 0);
}

}  // namespace
}  // namespace baton::e2e
