// Workers that leave in good order: what they run ends or continues elsewhere, what they hold is fetched
// first, and a rolling restart of a whole fleet under load costs no request.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include "tests/e2e/fleet.h"
#include "tests/e2e/salted_prompt.h"

namespace baton::e2e {
namespace {

TEST(LeavingTest, APrefillWorkerLeavesWhenItsKvHas) {
  // This policy hands every long prompt off.
  Fleet fleet({.prefill = 1,
               .decode = 1,
               .prefill_flags = {"--chunk-tokens", "32", "--token-budget", "32"},
               .router_flags = {"--policy", "least_loaded"},
               .gated = true,
               .drain_grace = kEndlessGrace});
  fleet.prefill_gates().Allow(20);  // of 60
  Answer answer;
  std::thread client([&] { answer = fleet.Generate(TokenRequest(SaltedPrompt(1900, 1), 4)); });
  EXPECT_TRUE(fleet.prefill_gates()[0].AwaitUsed());
  fleet.prefill().Signal(SIGTERM);
  EXPECT_TRUE(AwaitDraining(fleet.prefill()));
  fleet.prefill_gates().Open();
  client.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.end().relay().prefill_worker(), "prefill-0");
  EXPECT_EQ(answer.end().relay().failovers(), 0u);
  EXPECT_EQ(answer.end().relay().shipped_blocks(), 119u);
  EXPECT_EQ(fleet.prefill().Wait().value, 0);
}

TEST(LeavingTest, ARollingRestartOfEveryWorkerUnderLoadFailsNoRequest) {
  // A grace so short that answers have to move.
  Fleet fleet({.prefill = 2, .decode = 2, .gated = true, .drain_grace = "0.05"});
  constexpr uint32_t kClients = 3;
  constexpr int kAnswer = 1000;
  std::vector<Answer> undisturbed;
  for (uint32_t i = 0; i < kClients; ++i) {
    undisturbed.push_back(fleet.Generate(TokenRequest(SaltedPrompt(120, static_cast<int>(i)), kAnswer)));
    ASSERT_TRUE(undisturbed.back().status.ok()) << undisturbed.back().status;
  }
  std::atomic<bool> stop = false;
  std::atomic<int> served = 0, failed = 0, moved = 0;
  std::array<std::atomic<int>, kClients> ended = {};
  std::vector<std::thread> clients;
  for (uint32_t i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      while (!stop) {
        const Answer answer = fleet.Generate(TokenRequest(SaltedPrompt(120, static_cast<int>(i)), kAnswer));
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
  // Each client has an answer on one of the decode workers, where it stays. When the first of these leaves,
  // the answers on it go to the second, and when that leaves, all go to the first.
  fleet.decode_gates().Close();
  const auto all_are_there = [&] {
    uint32_t answers = 0;
    for (int i = 0; i < 2; ++i) {
      const fleet::v1::Load load = LoadOf(fleet.decode(i));
      answers += load.running() + load.queued();
    }
    return answers == kClients;
  };
  EXPECT_TRUE(Await(all_are_there, "an answer of each client"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fleet.RestartDecode(i).value, 0);
    fleet.AwaitWorkers(2, 2);
  }
  fleet.decode_gates().Open();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fleet.RestartPrefill(i).value, 0);
    fleet.AwaitWorkers(2, 2);
  }
  // Answers say where they have been when they end.
  for (std::atomic<int>& count : ended) count.wait(count.load());
  stop = true;
  for (std::thread& client : clients) client.join();
  std::printf("%d requests served over a rolling restart, %d failed, %d migrations\n", served.load(),
              failed.load(), moved.load());
  EXPECT_GE(moved, static_cast<int>(kClients));
  fleet.ExpectNothingHeld();
}

// One worker of each role, as a small deployment has: each is replaced in good order, then killed. What comes
// meanwhile waits for the new one, and so does what has begun.
TEST(LeavingTest, TheOnlyWorkersAreReplacedUnderLoadAndNoRequestFails) {
  Fleet fleet({.prefill = 1, .decode = 1, .drain_grace = "0.05"});
  constexpr int kClients = 3, kAnswer = 300;
  std::vector<Answer> undisturbed;
  for (int i = 0; i < kClients; ++i) {
    undisturbed.push_back(fleet.Generate(TokenRequest(SaltedPrompt(120, i), kAnswer)));
    ASSERT_TRUE(undisturbed.back().status.ok()) << undisturbed.back().status;
  }
  std::atomic<bool> stop = false;
  std::atomic<int> served = 0, failed = 0, moved = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      while (!stop) {
        const Answer answer = fleet.Generate(TokenRequest(SaltedPrompt(120, i), kAnswer));
        if (!answer.status.ok()) {
          ++failed;
          ADD_FAILURE() << answer.status;
          continue;
        }
        ++served;
        moved += static_cast<int>(answer.end().relay().migrations());
        EXPECT_EQ(answer.digests, undisturbed[i].digests);
      }
    });
  }
  const auto next_answers = [&] {
    const int before = served + failed;
    return Await([&] { return served + failed >= before + kClients; }, "answers");
  };
  for (const int signal : {SIGTERM, SIGKILL}) {
    EXPECT_TRUE(next_answers());
    fleet.RestartDecode(0, signal);
    EXPECT_TRUE(next_answers());
    fleet.RestartPrefill(0, signal);
  }
  EXPECT_TRUE(next_answers());
  stop = true;
  for (std::thread& client : clients) client.join();
  std::printf("%d requests served while the only workers were replaced, %d failed, %d migrations\n",
              served.load(), failed.load(), moved.load());
  fleet.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
