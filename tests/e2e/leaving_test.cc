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

// Clients that ask one after the other, each its own prompt again and again: every answer is what it was
// before anything happened. One that fails fails the test.
class Clients {
 public:
  static constexpr int kClients = 3;

  Clients(Fleet& fleet, int answer_tokens) : fleet_(fleet), answer_tokens_(answer_tokens) {
    for (int i = 0; i < kClients; ++i) {
      undisturbed_.push_back(Ask(i));
      EXPECT_TRUE(undisturbed_.back().status.ok()) << undisturbed_.back().status;
    }
    for (int i = 0; i < kClients; ++i) threads_.emplace_back([this, i] { Run(i); });
  }
  ~Clients() { Stop(); }

  // Each has had another answer.
  void AwaitAnswers() {
    for (std::atomic<int>& count : ended_) count.wait(count.load());
  }
  // Waits for their last answers, and tells how many there were.
  void Stop() {
    if (stop_.exchange(true)) return;
    for (std::thread& thread : threads_) thread.join();
    int served = 0;
    for (const std::atomic<int>& count : ended_) served += count;
    std::printf("%d requests, %d failed, %d migrations\n", served, failed_.load(), moved_.load());
  }
  int moved() const { return moved_; }

 private:
  Answer Ask(int client) {
    return fleet_.Generate(TokenRequest(SaltedPrompt(120, client), static_cast<uint32_t>(answer_tokens_)));
  }
  void Run(int client) {
    while (!stop_) {
      const Answer answer = Ask(client);
      if (answer.status.ok()) {
        moved_ += static_cast<int>(answer.end().relay().migrations());
        EXPECT_EQ(answer.digests, undisturbed_[client].digests);
      } else {
        ++failed_;
        ADD_FAILURE() << answer.status;
      }
      ++ended_[client];
      ended_[client].notify_all();
    }
  }

  Fleet& fleet_;
  const int answer_tokens_;
  std::vector<Answer> undisturbed_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> failed_ = 0, moved_ = 0;
  std::array<std::atomic<int>, kClients> ended_ = {};
  std::vector<std::thread> threads_;
};

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
  Clients clients(fleet, 1000);
  // Each client has an answer on one of the decode workers, where it stays. When the first of these leaves,
  // the answers on it go to the second, and when that leaves, all go to the first.
  fleet.decode_gates().Close();
  const auto all_are_there = [&] {
    uint32_t answers = 0;
    for (int i = 0; i < 2; ++i) {
      const fleet::v1::Load load = LoadOf(fleet.decode(i));
      answers += load.running() + load.queued();
    }
    return answers == Clients::kClients;
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
  clients.AwaitAnswers();
  clients.Stop();
  EXPECT_GE(clients.moved(), Clients::kClients);
  fleet.ExpectNothingHeld();
}

// One worker of each role, as a small deployment has: each is replaced in good order, then killed. What comes
// meanwhile waits for the new one, and so does what has begun.
TEST(LeavingTest, TheOnlyWorkersAreReplacedUnderLoadAndNoRequestFails) {
  Fleet fleet({.prefill = 1, .decode = 1, .drain_grace = "0.05"});
  Clients clients(fleet, 300);
  for (const int signal : {SIGTERM, SIGKILL}) {
    clients.AwaitAnswers();
    fleet.RestartDecode(0, signal);
    clients.AwaitAnswers();
    fleet.RestartPrefill(0, signal);
  }
  clients.AwaitAnswers();
  clients.Stop();
  fleet.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
