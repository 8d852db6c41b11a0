// The relay over `--link ucx`, with the real UCX between real processes (TCP and shared memory on one
// machine): the same bits as the engine alone, and peers that are killed or stopped in the middle of a read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "common/engine/solo.h"
#include "common/transfer/ucx/open_ucx.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/solo_answers.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

// Real workers, the real UCX: over TCP and shared memory here.
FleetOptions OverUcx(int prefill, std::vector<std::string> more = {}) {
  std::vector<std::string> flags = {"--link", "ucx"};
  flags.insert(flags.end(), more.begin(), more.end());
  return {.prefill = prefill,
          .prefill_flags = flags,
          .decode_flags = flags,
          .router_flags = {"--policy", "round_robin"}};
}

class UcxRelayTest : public testing::Test {
 protected:
  void SetUp() override {
    device::Memory* const host = &device::HostMemory();
    if (const auto ucx = transfer::OpenUcx({&host, 1}); !ucx.ok()) GTEST_SKIP() << ucx.status();
  }
  static double Ucx(const Process& worker, const std::string& metric) {
    return Metric(worker, fmt::format("baton_link_{}{{link=\"ucx\"}}", metric));
  }
  // Whatever was shipped has been read or given up, and no memory is in use.
  static void ExpectNoPayloads(const std::vector<Process*>& workers) {
    for (const Process* worker : workers) {
      Await([&] { return Ucx(*worker, "held_payloads") == 0 && Ucx(*worker, "staging_used_bytes") == 0; },
            "no payload at " + worker->grpc(), kLinkPatience);
    }
  }
};

TEST_F(UcxRelayTest, TokensAndLogitsAreThoseOfTheEngineAlone) {
  Fleet fleet(OverUcx(2, {"--link-timeout", "60", "--chunk-tokens", "64"}));
  const int shipped = ExpectSoloAnswersOver(fleet, "ucx");
  fleet.ExpectNothingHeld();
  ExpectNoPayloads({&fleet.prefill(0), &fleet.prefill(1), &fleet.decode()});
  EXPECT_EQ(Ucx(fleet.decode(), "connections"), 2);
  EXPECT_EQ(Ucx(fleet.decode(), "quarantines_total"), 0);
  EXPECT_EQ(Ucx(fleet.prefill(0), "given_up_payloads_total"), 0);
  EXPECT_GE(Metric(fleet.decode(), "baton_handoffs_total{link=\"ucx\",outcome=\"ok\"}"), shipped);
  for (Process* worker : {&fleet.prefill(0), &fleet.decode()}) {
    worker->Signal(SIGTERM);
    EXPECT_EQ(worker->Wait().value, 0) << "no hang at the end";
  }
}

TEST_F(UcxRelayTest, ClientsThatLeaveCostNoMemory) {
  Fleet fleet(OverUcx(1, {"--link-timeout", "60", "--chunk-tokens", "16", "--token-budget", "16"}));
  LeaveWhilePromptsAreComputed(fleet);
  // Not after the timeout, which is a minute.
  ExpectNoPayloads({&fleet.prefill(), &fleet.decode()});
  ExpectSoloAnswerOver(fleet, "ucx");
  EXPECT_EQ(Ucx(fleet.decode(), "quarantines_total"), 0);
  fleet.ExpectNothingHeld();
}

// A prefill worker is killed or stopped while its KV is read: the hand-off goes to the other one, at once and
// not after --link-timeout, and every token is right.
class UcxPeerFailureTest : public UcxRelayTest, public testing::WithParamInterface<int> {
 protected:
  // Sends prompts to a fleet of two prefill workers until the first of them computes one, and sends it the
  // signal then. `failovers`: how many hand-offs went to the other worker; none if the prompt ended before
  // the signal came.
  void FailPrefillWorker(int& failovers);
};

void UcxPeerFailureTest::FailPrefillWorker(int& failovers) {
  FleetOptions options =
      OverUcx(2, {"--link-timeout", "600", "--chunk-tokens", "16", "--token-budget", "16"});
  if (GetParam() == SIGSTOP) options.keepalive = kQuickKeepalive;
  Fleet fleet(options);
  const auto engine = OneEngine();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(fleet.Generate(Request(Prompt(100, i), 2)).status.ok());
  ASSERT_EQ(Ucx(fleet.decode(), "connections"), 2);
  for (int i = 0; i < 2; ++i) {  // one of them goes to the first worker
    SCOPED_TRACE(i);
    const auto prompt = Prompt(2000, 10 + i);
    Answer answer;
    std::atomic<bool> answered = false;
    std::thread client([&] {
      answer = fleet.Generate(Request(prompt, 6));
      answered = true;
    });
    const auto computing = [&] {
      bool running = false;
      (void)AwaitLoad(fleet.prefill(0).grpc(), [&](const v1::Load& load) {
        running = load.running() > 0 && load.queued_tokens() < 1800;
        return true;
      });
      return running;
    };
    bool failed = false;
    const auto computes_it = [&] {
      failed = !answered && computing();
      return failed || answered;
    };
    Await(computes_it, "a prompt at the first prefill worker, or its answer", kLinkPatience);
    if (failed) fleet.prefill(0).Signal(GetParam());
    client.join();
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.digests, Alone(*engine, prompt, 6).logits_digests);
    failovers += static_cast<int>(answer.end().relay().failovers());
    if (failovers > 0) {
      EXPECT_EQ(answer.end().relay().prefill_worker(), "prefill-1");
    }
    if (failed) break;
  }
  if (failovers == 0) return;
  EXPECT_TRUE(AwaitLoad(fleet.decode().grpc(), [](const v1::Load& load) { return load.held_blocks() == 0; }));
  ExpectNoPayloads({&fleet.prefill(1), &fleet.decode()});
  Await([&] { return Ucx(fleet.decode(), "connections") == 1; }, "the dead one to be forgotten",
        kLinkPatience);
  fleet.decode().Signal(SIGTERM);
  EXPECT_EQ(fleet.decode().Wait().value, 0) << "no hang at the end";
}

TEST_P(UcxPeerFailureTest, APeerThatFailsInTheMiddleCostsNoRequestAndNoToken) {
  int failovers = 0;
  for (int attempt = 0; attempt < 5 && failovers == 0; ++attempt) {
    ASSERT_NO_FATAL_FAILURE(FailPrefillWorker(failovers));
  }
  EXPECT_EQ(failovers, 1) << "each prompt was computed before the signal came";
}

// And a decode worker that reads: what was held for it is given back, and others are served.
TEST_P(UcxPeerFailureTest, AReaderThatFailsInTheMiddleGivesMemoryBack) {
  // A stream that was ended before its reader stopped does not break: what it told of is held for twice the
  // timeout.
  const char* const timeout = GetParam() == SIGKILL ? "600" : "10";
  FleetOptions options =
      OverUcx(1, {"--link-timeout", timeout, "--chunk-tokens", "16", "--token-budget", "16"});
  options.decode = 2;
  if (GetParam() == SIGSTOP) options.keepalive = kQuickKeepalive;
  Fleet fleet(options);
  const auto engine = OneEngine();
  std::vector<int32_t> prompt;
  Answer answer;
  int failed = -1;
  // On a busy machine a hand-off may end before this process looks.
  for (int attempt = 0; attempt < 10 && failed < 0; ++attempt) {
    prompt = Prompt(1500, 3 + attempt);
    std::atomic<bool> answered = false;
    std::thread client([&] {
      answer = fleet.Generate(Request(prompt, 6));
      answered = true;
    });
    const auto reads = [&] {
      for (int i = 0; i < 2 && failed < 0; ++i) {
        if (Metric(fleet.decode(i), "baton_decode_sequences{state=\"handoff\"}") > 0) failed = i;
      }
      return answered || failed >= 0;
    };
    Await(reads, "a hand-off, or its answer", kLinkPatience);
    if (failed >= 0) fleet.decode(failed).Signal(GetParam());
    client.join();
  }
  ASSERT_GE(failed, 0) << "no prompt was seen in its hand-off";
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.digests, Alone(*engine, prompt, 6).logits_digests);
  ExpectNoPayloads({&fleet.prefill(), &fleet.decode(1 - failed)});
  EXPECT_TRUE(
      AwaitLoad(fleet.prefill().grpc(), [](const v1::Load& load) { return load.held_blocks() == 0; }));
  fleet.prefill().Signal(SIGTERM);
  EXPECT_EQ(fleet.prefill().Wait().value, 0) << "no hang at the end";
}

INSTANTIATE_TEST_SUITE_P(Signals, UcxPeerFailureTest, testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "killed" : "stopped"; });

}  // namespace
}  // namespace baton::e2e
