// The network between real processes: a prefill worker in a network namespace of its own, router, decode
// worker and clients in another, and between them a cable that loses, delays, repeats, reorders and damages
// frames, or is cut. Every answer is that of an undisturbed decode worker that prefills by itself, bit for
// bit, and at the end nobody holds a block.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

#include "tests/e2e/fleet.h"
#include "tests/fault/bad_wire.h"
#include "tests/seed.h"

namespace baton::fault {
namespace {

using e2e::Answer;
using e2e::Fleet;

constexpr int kRequests = 6;
// Blocks of all prompts that are shipped without trouble, each less its last, which may be incomplete.
constexpr uint64_t kShipped = 80;

v1::GenerateRequest Request(int which) {
  std::vector<int32_t> prompt;
  // No two share a block, so that all of it travels.
  for (int i = 0; i < 100 + 60 * which; ++i) prompt.push_back(20 + (i * 31 + which * 113) % 1990);
  v1::GenerateRequest request = e2e::TokenRequest(prompt, 12);
  if (which % 2 == 1) {
    request.mutable_sampling()->set_temperature(0.8f);
    request.mutable_sampling()->set_seed(which);
    request.mutable_sampling()->set_presence_penalty(0.4f);
  }
  return request;
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    const uint64_t seed = TestSeed();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    auto wire = BadWire::Create(seed);
    if (!wire.ok()) GTEST_SKIP() << "no bad network can be had here: " << wire.status();
    wire_ = *std::move(wire);
    {
      Fleet alone({.prefill = 0});
      for (int which = 0; which < kRequests; ++which) {
        expected_.push_back(alone.Generate(Request(which)));
        ASSERT_TRUE(expected_.back().status.ok()) << expected_.back().status;
      }
    }
    fleet_.emplace(e2e::FleetOptions{.prefill = 1,
                                     .prefill_flags = {"--listen", std::string(BadWire::kFarAddress) + ":0",
                                                       "--chunk-tokens", "32", "--token-budget", "64"},
                                     // This policy always hands off.
                                     .router_flags = {"--policy", "round_robin"},
                                     .keepalive = e2e::kQuickKeepalive,
                                     .prefill_namespace = wire_->far_namespace()});
  }

  // Asks for all of them at once, under that trouble.
  void AskAllUnder(const Trouble& trouble) {
    wire_->Set(trouble);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Answer> answers(kRequests);
    std::vector<std::thread> clients;
    for (int which = 0; which < kRequests; ++which) {
      clients.emplace_back([&, which] { answers[which] = fleet_->Generate(Request(which)); });
    }
    for (std::thread& client : clients) client.join();
    uint64_t shipped = 0, failovers = 0;
    for (int which = 0; which < kRequests; ++which) {
      const Answer& answer = answers[which];
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      EXPECT_EQ(answer.tokens, expected_[which].tokens) << "request " << which;
      EXPECT_EQ(answer.digests, expected_[which].digests) << "request " << which;
      shipped += answer.end().relay().shipped_blocks();
      failovers += answer.end().relay().failovers();
    }
    shipped_ = shipped;
    const BadWire::Counts counts = wire_->counts();
    fmt::print(
        "{} answers in {:.1f} s, {} blocks shipped, {} failovers; frames: {} passed, {} lost, {} repeated, "
        "{} damaged, {} "
        "late\n",
        kRequests, SecondsSince(begin), shipped, failovers, counts.passed, counts.lost, counts.repeated,
        counts.damaged, counts.reordered);
    wire_->Set({});
    fleet_->ExpectNothingHeld();
  }

  std::unique_ptr<BadWire> wire_;
  std::vector<Answer> expected_;
  std::optional<Fleet> fleet_;
  uint64_t shipped_ = 0;
};

TEST_F(NetworkTest, AGoodCableShipsEverything) {
  AskAllUnder({});
  EXPECT_GT(shipped_, kShipped);
  EXPECT_GT(wire_->counts().passed, 100);
}

TEST_F(NetworkTest, LossCostsTimeAndNoToken) {
  AskAllUnder({.loss = 0.05});
  EXPECT_GT(wire_->counts().lost, 0);
}

TEST_F(NetworkTest, DelayIsNotDeath) {
  AskAllUnder({.delay = absl::Milliseconds(100)});
  EXPECT_GT(shipped_, kShipped) << "100 ms are less than keepalive's patience";
}

TEST_F(NetworkTest, RepeatedFramesChangeNothing) {
  AskAllUnder({.repeat = 0.3});
  EXPECT_GT(wire_->counts().repeated, 0);
}

TEST_F(NetworkTest, ReorderedFramesChangeNothing) {
  AskAllUnder({.reorder = 0.2});
  EXPECT_GT(wire_->counts().reordered, 0);
}

TEST_F(NetworkTest, DamagedFramesChangeNothing) {
  AskAllUnder({.damage = 0.05});
  EXPECT_GT(wire_->counts().damaged, 0);
}

TEST_F(NetworkTest, AllOfItAtOnce) {
  AskAllUnder(
      {.loss = 0.02, .repeat = 0.05, .damage = 0.02, .reorder = 0.05, .delay = absl::Milliseconds(20)});
}

// In the middle of a prompt, while blocks travel: the decode worker goes on by itself, the prefill worker,
// whom nobody can reach, lets go by itself, and when the cable is whole again the relay goes on.
TEST_F(NetworkTest, ACutCableMidPromptCostsNoAnswerAndIsForgotten) {
  const v1::GenerateRequest longest = [] {
    std::vector<int32_t> prompt;
    for (int i = 0; i < 1900; ++i) prompt.push_back(20 + (i * 37) % 1990);
    return e2e::TokenRequest(prompt, 8);
  }();
  Answer undisturbed;
  {
    Fleet alone({.prefill = 0});
    undisturbed = alone.Generate(longest);
    ASSERT_TRUE(undisturbed.status.ok()) << undisturbed.status;
  }
  // The prompt's blocks are several times as many frames.
  wire_->Set({.cut_after = 300});
  Answer answer;
  std::thread client([&] { answer = fleet_->Generate(longest); });
  wire_->AwaitCut();
  const auto cut = std::chrono::steady_clock::now();
  client.join();
  fmt::print("answered {:.2f} s after the cut\n", SecondsSince(cut));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.digests, undisturbed.digests);
  EXPECT_EQ(answer.end().relay().failovers(), 1u);
  wire_->Set({});
  fleet_->AwaitWorkers(1, 1);
  fleet_->ExpectNothingHeld();
  fmt::print("nothing held {:.2f} s after the cut\n", SecondsSince(cut));
  AskAllUnder({});
  EXPECT_GT(shipped_, kShipped);
}

}  // namespace
}  // namespace baton::fault
