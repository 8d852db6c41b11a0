// Placement on real processes: bursts are spread over alike workers, whatever happened to one of them before,
// and conversations stay. Prints what went where.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/fleet.h"
#include "tests/patience.h"
#include "tests/seed.h"

namespace baton::e2e {
namespace {

constexpr double kMaxOverMean = 1.3;

std::vector<int32_t> RandomPrompt(std::mt19937_64& random, int tokens) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i) prompt.push_back(static_cast<int32_t>(20 + random() % 1980));
  return prompt;
}

class PlacementTest : public ::testing::Test {
 protected:
  PlacementTest() : seed_(TestSeed()), random_(seed_) {}

  // So many requests at once, each so long that none ends before all are placed; how many answers came from
  // each worker.
  std::map<std::string, int> Burst(Fleet& fleet, int requests) {
    std::map<std::string, int> answers;
    std::mutex mutex;
    std::vector<std::thread> clients;
    for (int i = 0; i < requests; ++i) {
      clients.emplace_back([&, prompt = RandomPrompt(random_, 60)] {
        const Answer answer = fleet.Generate(TokenRequest(prompt, 160));
        EXPECT_TRUE(answer.status.ok()) << answer.status;
        const std::lock_guard lock(mutex);
        if (answer.status.ok()) ++answers[answer.end().relay().decode_worker()];
      });
    }
    for (std::thread& client : clients) client.join();
    return answers;
  }
  void ExpectSpread(Fleet& fleet, int workers, int requests, const std::string& when) {
    const std::map<std::string, int> answers = Burst(fleet, requests);
    std::string shown;
    int most = 0;
    for (const auto& [worker, count] : answers) {
      most = std::max(most, count);
      shown += fmt::format("{}{}", shown.empty() ? "" : " : ", count);
    }
    const double over_mean = static_cast<double>(most) * workers / requests;
    std::printf("%s: %d on %d workers went %s, max over mean %.2f\n", when.c_str(), requests, workers,
                shown.c_str(), over_mean);
    EXPECT_LE(over_mean, kMaxOverMean) << when << ": " << shown << " (seed " << seed_ << ")";
  }
  void OneAfterTheOther(Fleet& fleet, int requests) {
    for (int i = 0; i < requests; ++i) {
      EXPECT_TRUE(fleet.Generate(TokenRequest(RandomPrompt(random_, 60), 40)).status.ok());
    }
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
};

TEST_F(PlacementTest, BurstsOnAFreshFleet) {
  for (const int workers : {2, 4}) {
    Fleet fleet({.prefill = 0, .decode = workers});
    for (const int requests : {32, 64, 64, 128}) ExpectSpread(fleet, workers, requests, "fresh");
    OneAfterTheOther(fleet, 30);
    for (const int requests : {64, 128}) ExpectSpread(fleet, workers, requests, "after 30 alone");
  }
}

TEST_F(PlacementTest, AfterAKillAndARestart) {
  for (const int workers : {2, 4}) {
    Fleet fleet({.prefill = 0, .decode = workers});
    Burst(fleet, 64);
    fleet.decode(0).Signal(SIGKILL);
    fleet.RestartDecode(0);
    fleet.AwaitWorkers(0, static_cast<uint32_t>(workers));
    for (const int requests : {64, 128, 64}) ExpectSpread(fleet, workers, requests, "after a kill");
  }
}

TEST_F(PlacementTest, AfterAStall) {
  for (const int workers : {2, 4}) {
    Fleet fleet({.prefill = 0, .decode = workers});
    Burst(fleet, 64);
    std::thread stalled([&] { Burst(fleet, 32); });
    fleet.decode(0).Signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    fleet.decode(0).Signal(SIGCONT);
    stalled.join();
    for (const int requests : {64, 128, 64}) ExpectSpread(fleet, workers, requests, "after a stall");
  }
}

// A worker that has a tenth of its time gets less than the others, and is not given up.
TEST_F(PlacementTest, ASlowWorkerGetsLessAndIsNotGivenUp) {
  Fleet fleet({.prefill = 0, .decode = 4});
  std::atomic<bool> over = false;
  std::thread brake([&] {
    while (!over) {
      fleet.decode(0).Signal(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(45));
      fleet.decode(0).Signal(SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (int round = 0; round < 2; ++round) Burst(fleet, 48);  // nothing is known of it yet
  std::map<std::string, int> answers;
  for (int round = 0; round < 4; ++round) {
    for (const auto& [worker, count] : Burst(fleet, 48)) answers[worker] += count;
  }
  over = true;
  brake.join();
  int fewest = 1 << 20, most = 0;
  std::string shown;
  for (const auto& [worker, count] : answers) {
    fewest = std::min(fewest, count);
    most = std::max(most, count);
    shown += fmt::format("{}{}", shown.empty() ? "" : " : ", count);
  }
  std::printf("one slow worker of 4: 192 went %s\n", shown.c_str());
  EXPECT_EQ(answers.size(), 4u) << shown;
  EXPECT_LT(fewest, 0.85 * 192 / 4) << shown;
  EXPECT_LE(most, kMaxOverMean * (192 - fewest) / 3) << shown;
}

// Conversations of short prompts, several at a time: each turn finds what the turn before left.
TEST_F(PlacementTest, ConversationsStay) {
  Fleet fleet({.prefill = 0, .decode = 4});
  Burst(fleet, 64);
  std::atomic<int64_t> prompt_tokens = 0, cached_tokens = 0, moves = 0;
  // Three times, as how they come to lie is chance.
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> clients;
    for (int i = 0; i < 12; ++i) {
      clients.emplace_back([&, random = std::mt19937_64(random_())]() mutable {
        std::vector<int32_t> conversation = RandomPrompt(random, 80);
        std::string last;
        for (int turn = 0; turn < 6; ++turn) {
          const Answer answer = fleet.Generate(TokenRequest(conversation, 30));
          ASSERT_TRUE(answer.status.ok()) << answer.status;
          if (turn > 0) {
            prompt_tokens += static_cast<int64_t>(conversation.size()) - 40;
            cached_tokens += answer.end().usage().decode_cached_tokens();
            moves += answer.end().relay().decode_worker() != last ? 1 : 0;
          }
          last = answer.end().relay().decode_worker();
          conversation.insert(conversation.end(), answer.tokens.begin(), answer.tokens.end());
          const std::vector<int32_t> more = RandomPrompt(random, 40);
          conversation.insert(conversation.end(), more.begin(), more.end());
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
  const double hits = static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  std::printf("36 conversations of 6 turns: %.1f%% of what could be found was found, %d of 180 turns moved\n",
              100 * hits, static_cast<int>(moves));
  // Some move for a reason: their worker has more to do than computing the prefix again takes.
  EXPECT_GE(hits, 0.6);
}

// A conversation that nobody is in the way of stays where it is.
TEST_F(PlacementTest, AConversationAloneStays) {
  Fleet fleet({.prefill = 0, .decode = 4});
  Burst(fleet, 64);
  std::vector<int32_t> conversation = RandomPrompt(random_, 200);
  std::string first;
  for (int turn = 0; turn < 20; ++turn) {
    const Answer answer = fleet.Generate(TokenRequest(conversation, 20));
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    const std::string& worker = answer.end().relay().decode_worker();
    if (turn == 0) first = worker;
    EXPECT_EQ(worker, first) << "turn " << turn << " (seed " << seed_ << ")";
    conversation.insert(conversation.end(), answer.tokens.begin(), answer.tokens.end());
    const std::vector<int32_t> more = RandomPrompt(random_, 20);
    conversation.insert(conversation.end(), more.begin(), more.end());
  }
}

}  // namespace
}  // namespace baton::e2e
