// The relay over `--link ucx`, with the real UCX between real processes (TCP and shared memory on one
// machine): the same bits as the engine alone, and peers that are killed or stopped in the middle of a read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "engine/solo.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/solo_answers.h"
#include "tests/patience.h"
#include "transfer/ucx/open_ucx.h"

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
  FleetOptions options = OverUcx(1, {"--link-timeout", "60", "--chunk-tokens", "16", "--token-budget", "16"});
  options.gated = true;
  Fleet fleet(options);
  LeaveWhilePromptsAreComputed(fleet);
  // Not after the timeout, which is a minute.
  ExpectNoPayloads({&fleet.prefill(), &fleet.decode()});
  ExpectSoloAnswerOver(fleet, "ucx");
  EXPECT_EQ(Ucx(fleet.decode(), "quarantines_total"), 0);
  fleet.ExpectNothingHeld();
}

// Workers that are killed or stopped while KV is read. Prompts are computed a block at a time.
class UcxPeerFailureTest : public UcxRelayTest, public testing::WithParamInterface<int> {
 protected:
  static FleetOptions Options(int prefill, const std::string& timeout) {
    FleetOptions options =
        OverUcx(prefill, {"--link-timeout", timeout, "--chunk-tokens", "16", "--token-budget", "16"});
    options.gated = true;
    if (GetParam() == SIGSTOP) options.keepalive = kQuickKeepalive;
    return options;
  }
};

// The hand-off goes to the other prefill worker, at once and not after --link-timeout, and every token is
// right.
TEST_P(UcxPeerFailureTest, APeerThatFailsInTheMiddleCostsNoRequestAndNoToken) {
  Fleet fleet(Options(2, "600"));
  const auto engine = OneEngine();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(fleet.Generate(Request(Prompt(100, i), 2)).status.ok());
  ASSERT_EQ(Ucx(fleet.decode(), "connections"), 2);
  fleet.prefill_gates().Allow(50);  // of 125
  const auto prompt = Prompt(2000, 10);
  Answer answer;
  std::thread client([&] { answer = fleet.Generate(Request(prompt, 6)); });
  const int failing = fleet.prefill_gates().AwaitHeld();
  // It goes on for a while, so that KV is on its way when it fails.
  fleet.prefill_gates()[failing].Allow(20);
  fleet.prefill(failing).Signal(GetParam());
  fleet.prefill_gates()[1 - failing].Open();
  client.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.digests, Alone(*engine, prompt, 6).logits_digests);
  EXPECT_EQ(answer.end().relay().failovers(), 1u);
  EXPECT_EQ(answer.end().relay().prefill_worker(), fmt::format("prefill-{}", 1 - failing));
  EXPECT_TRUE(
      AwaitLoad(fleet.decode().grpc(), [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
  ExpectNoPayloads({&fleet.prefill(1 - failing), &fleet.decode()});
  Await([&] { return Ucx(fleet.decode(), "connections") == 1; }, "the dead one to be forgotten",
        kLinkPatience);
  fleet.decode().Signal(SIGTERM);
  EXPECT_EQ(fleet.decode().Wait().value, 0) << "no hang at the end";
}

// And a decode worker that reads: what was held for it is given back, and others are served.
TEST_P(UcxPeerFailureTest, AReaderThatFailsInTheMiddleGivesMemoryBack) {
  // A stream that was ended before its reader stopped does not break: what it told of is held for twice the
  // timeout.
  FleetOptions options = Options(1, GetParam() == SIGKILL ? "600" : "10");
  options.decode = 2;
  Fleet fleet(options);
  const auto engine = OneEngine();
  fleet.prefill_gates().Allow(30);  // of 94
  const auto prompt = Prompt(1500, 3);
  Answer answer;
  std::thread client([&] { answer = fleet.Generate(Request(prompt, 6)); });
  EXPECT_TRUE(fleet.prefill_gates()[0].AwaitUsed());
  const int failing = LoadOf(fleet.decode(0)).queued() > 0 ? 0 : 1;
  EXPECT_EQ(LoadOf(fleet.decode(failing)).queued(), 1u) << "it waits for the prompt's KV";
  // The prompt goes on for a while, so that KV is on its way to the one that fails.
  fleet.prefill_gates().Allow(20);
  fleet.decode(failing).Signal(GetParam());
  if (GetParam() == SIGKILL) {
    fleet.decode(failing).Wait();
  } else {
    fleet.decode(failing).AwaitStopped();
  }
  fleet.prefill_gates().Open();
  client.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.digests, Alone(*engine, prompt, 6).logits_digests);
  EXPECT_EQ(answer.end().relay().decode_worker(), fmt::format("decode-{}", 1 - failing));
  ExpectNoPayloads({&fleet.prefill(), &fleet.decode(1 - failing)});
  EXPECT_TRUE(
      AwaitLoad(fleet.prefill().grpc(), [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
  fleet.prefill().Signal(SIGTERM);
  EXPECT_EQ(fleet.prefill().Wait().value, 0) << "no hang at the end";
}

INSTANTIATE_TEST_SUITE_P(Signals, UcxPeerFailureTest, testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "killed" : "stopped"; });

}  // namespace
}  // namespace baton::e2e
