#include "router/placement/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/random.h"

namespace baton::router::placement {
namespace {

WorkerState Worker(uint32_t slot, int64_t running = 0, int64_t queued_tokens = 0) {
  WorkerState state;
  state.slot = WorkerSlot(slot);
  state.running = running;
  state.queued_tokens = queued_tokens;
  return state;
}

using States = std::vector<WorkerState>;

TEST(LeastLoadedTest, TakesTheFewestRequests) {
  auto policy = *MakePolicy("least_loaded", 1);
  States decode = {Worker(0, 3), Worker(1, 1), Worker(2, 2)};
  EXPECT_EQ(policy->Choose({}, decode, {}).decode, 1u);
  decode[1].waiting = 2;
  EXPECT_EQ(policy->Choose({}, decode, {}).decode, 2u) << "those that wait count too";
}

TEST(LeastLoadedTest, RanksPrefillWorkersByWaitingTokens) {
  auto policy = *MakePolicy("least_loaded", 1);
  const States decode = {Worker(0)};
  const States prefill = {Worker(0, 0, 900), Worker(1, 0, 100), Worker(2, 0, 500), Worker(3, 0, 700)};
  EXPECT_EQ(policy->Choose({}, decode, prefill).prefill, (std::vector<size_t>{1, 2, 3}));
}

TEST(LeastLoadedTest, ABurstSpreadsEvenly) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  auto policy = *MakePolicy("least_loaded", seed);
  States decode, prefill;
  for (uint32_t i = 0; i < 7; ++i) decode.push_back(Worker(i));
  for (uint32_t i = 0; i < 3; ++i) prefill.push_back(Worker(i));
  for (int i = 0; i < 700; ++i) {
    const Choice choice = policy->Choose({}, decode, prefill);
    ++decode[choice.decode].running;
    ++prefill[choice.prefill.front()].running;
    prefill[choice.prefill.front()].queued_tokens += 16;
  }
  for (const WorkerState& worker : decode) EXPECT_EQ(worker.running, 100);
  for (const WorkerState& worker : prefill) EXPECT_NEAR(worker.running, 233, 1);
}

TEST(LeastLoadedTest, EqualsAreChosenAlike) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  auto policy = *MakePolicy("least_loaded", seed);
  States decode;
  for (uint32_t i = 0; i < 4; ++i) decode.push_back(Worker(i));
  std::map<size_t, int> chosen;
  for (int i = 0; i < 4000; ++i) ++chosen[policy->Choose({}, decode, {}).decode];
  for (const auto& [at, times] : chosen) EXPECT_NEAR(times, 1000, 200) << at;  // 7 sigma
}

// Whatever the loads: no worker with fewer requests was passed over, and targets are distinct and in order.
TEST(LeastLoadedTest, IsNeverBeaten) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  auto policy = *MakePolicy("least_loaded", seed);
  for (int round = 0; round < 300; ++round) {
    States decode, prefill;
    for (int i = 0; i <= draw(9); ++i) decode.push_back(Worker(static_cast<uint32_t>(i), draw(5)));
    for (int i = 0; i < draw(6); ++i) {
      prefill.push_back(Worker(static_cast<uint32_t>(i), 0, draw(4) * 100));
    }
    const Choice choice = policy->Choose({}, decode, prefill);
    for (const WorkerState& worker : decode) EXPECT_LE(decode[choice.decode].requests(), worker.requests());
    EXPECT_EQ(choice.prefill.size(), std::min(kMaxPrefillTargets, prefill.size()));
    for (size_t i = 1; i < choice.prefill.size(); ++i) {
      EXPECT_LE(prefill[choice.prefill[i - 1]].queued_tokens, prefill[choice.prefill[i]].queued_tokens);
      EXPECT_NE(choice.prefill[i - 1], choice.prefill[i]);
    }
  }
}

TEST(RoundRobinTest, TakesEachInTurn) {
  auto policy = *MakePolicy("round_robin", 0);
  const States decode = {Worker(0, 9), Worker(1)};
  const States prefill = {Worker(0), Worker(1)};
  EXPECT_EQ(policy->Choose({}, decode, prefill).decode, 0u);
  const Choice second = policy->Choose({}, decode, prefill);
  EXPECT_EQ(second.decode, 1u);
  EXPECT_EQ(second.prefill, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(policy->Choose({}, decode, prefill).decode, 0u);
}

// A policy sees the same workers in another order and names the same ones.
TEST(PolicyTest, TheOrderOfTheListDoesNotMatter) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  for (const char* name : {"prefix_affinity", "least_loaded", "round_robin"}) {
    auto one = *MakePolicy(name, seed);
    auto other = *MakePolicy(name, seed);
    for (int round = 0; round < 200; ++round) {
      States workers;
      for (int i = 0; i <= draw(8); ++i) {
        workers.push_back(Worker(static_cast<uint32_t>(i), draw(3), draw(3) * 50));
      }
      States turned = workers;
      std::rotate(turned.begin(), turned.begin() + draw(static_cast<int>(turned.size())), turned.end());
      const Choice a = one->Choose({}, workers, workers);
      const Choice b = other->Choose({}, turned, turned);
      EXPECT_EQ(workers[a.decode].slot, turned[b.decode].slot) << name;
      ASSERT_EQ(a.prefill.size(), b.prefill.size()) << name;
      for (size_t i = 0; i < a.prefill.size(); ++i) {
        EXPECT_EQ(workers[a.prefill[i]].slot, turned[b.prefill[i]].slot) << name;
      }
    }
  }
}

TEST(MakePolicyTest, NamesWhatIsKnown) {
  const auto policy = MakePolicy("fastest", 0);
  EXPECT_TRUE(absl::IsInvalidArgument(policy.status()));
  EXPECT_NE(policy.status().message().find("prefix_affinity, least_loaded or round_robin"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace baton::router::placement
