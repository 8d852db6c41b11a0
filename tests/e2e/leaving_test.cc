// Workers that leave in good order: what they run ends or continues elsewhere, what they hold is fetched
// first, and a rolling restart of a whole fleet under load costs no request.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include "tests/e2e/fleet.h"

namespace baton::e2e {
namespace {

std::vector<int32_t> Prompt(int size, int salt) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < size; ++i) tokens.push_back(20 + (i * 31 + salt * 7) % 1990);
  return tokens;
}

TEST(LeavingTest, APrefillWorkerLeavesWhenItsKvHas) {
  // This policy hands every long prompt off.
  Fleet fleet({.prefill = 1,
               .decode = 1,
               .prefill_flags = {"--chunk-tokens", "32", "--token-budget", "32"},
               .router_flags = {"--policy", "least_loaded"}});
  Answer answer;
  std::thread client([&] { answer = fleet.Generate(TokenRequest(Prompt(1900, 1), 4)); });
  // It is at work: tell it to leave.
  EXPECT_TRUE(AwaitLoad(fleet.prefill().grpc(), [](const v1::Load& load) { return load.running() > 0; }));
  fleet.prefill().Signal(SIGTERM);
  client.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.end().relay().prefill_worker(), "prefill-0");
  EXPECT_EQ(answer.end().relay().failovers(), 0u);
  EXPECT_EQ(answer.end().relay().shipped_blocks(), 119u);
  EXPECT_EQ(fleet.prefill().Wait().value, 0);
}

TEST(LeavingTest, ARollingRestartOfEveryWorkerUnderLoadFailsNoRequest) {
  // A grace so short that answers have to move.
  Fleet fleet({.prefill = 2, .decode = 2, .drain_grace = "0.05"});
  constexpr int kClients = 3;
  constexpr int kAnswer = 1000;
  std::vector<Answer> undisturbed;
  for (int i = 0; i < kClients; ++i) {
    undisturbed.push_back(fleet.Generate(TokenRequest(Prompt(120, i), kAnswer)));
    ASSERT_TRUE(undisturbed.back().status.ok()) << undisturbed.back().status;
  }
  std::atomic<bool> stop = false;
  std::atomic<int> served = 0, failed = 0, moved = 0;
  std::array<std::atomic<int>, kClients> ended = {};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      while (!stop) {
        const Answer answer = fleet.Generate(TokenRequest(Prompt(120, i), kAnswer));
        ++served;
        if (answer.status.ok()) {
          moved += static_cast<int>(answer.end().relay().migrations());
          EXPECT_EQ(answer.digests, undisturbed[i].digests);
        } else {
          ++failed;
          ADD_FAILURE() << answer.status;
        }
        ++ended[i];
        ended[i].notify_all();
      }
    });
  }
  // Now and then every worker leaves between two answers: then all leave once more.
  for (int round = 0; round == 0 || (moved == 0 && round < 6); ++round) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(fleet.RestartDecode(i).value, 0);
      fleet.AwaitWorkers(2, 2);
      EXPECT_EQ(fleet.RestartPrefill(i).value, 0);
      fleet.AwaitWorkers(2, 2);
    }
    // Answers say where they have been when they end.
    for (std::atomic<int>& count : ended) count.wait(count.load());
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  std::printf("%d requests served over a rolling restart, %d failed, %d migrations\n", served.load(),
              failed.load(), moved.load());
  EXPECT_GT(served, 0);
  EXPECT_GT(moved, 0) << "no answer was on a worker when it left";
  fleet.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
