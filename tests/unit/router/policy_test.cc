#include "router/placement/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "common/base/random.h"
#include "tests/seed.h"

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
  EXPECT_EQ(policy->Select({}, {decode, {}}).decode, 1u);
  decode[1].waiting = 2;
  EXPECT_EQ(policy->Select({}, {decode, {}}).decode, 2u) << "those that wait count too";
}

TEST(LeastLoadedTest, RanksPrefillWorkersByWaitingTokens) {
  auto policy = *MakePolicy("least_loaded", 1);
  const States decode = {Worker(0)};
  const States prefill = {Worker(0, 0, 900), Worker(1, 0, 100), Worker(2, 0, 500), Worker(3, 0, 700)};
  EXPECT_EQ(policy->Select({}, {decode, prefill}).prefill, (std::vector<size_t>{1, 2, 3}));
}

TEST(LeastLoadedTest, ABurstSpreadsEvenly) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  auto policy = *MakePolicy("least_loaded", seed);
  States decode, prefill;
  for (uint32_t i = 0; i < 7; ++i) decode.push_back(Worker(i));
  for (uint32_t i = 0; i < 3; ++i) prefill.push_back(Worker(i));
  for (int i = 0; i < 700; ++i) {
    const Selection selection = policy->Select({}, {decode, prefill});
    ++decode[selection.decode].running;
    ++prefill[selection.prefill.front()].running;
    prefill[selection.prefill.front()].queued_tokens += 16;
  }
  for (const WorkerState& worker : decode) EXPECT_EQ(worker.running, 100);
  for (const WorkerState& worker : prefill) EXPECT_NEAR(worker.running, 233, 1);
}

TEST(LeastLoadedTest, EqualsAreChosenAlike) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  auto policy = *MakePolicy("least_loaded", seed);
  States decode;
  for (uint32_t i = 0; i < 4; ++i) decode.push_back(Worker(i));
  std::map<size_t, int> chosen;
  for (int i = 0; i < 4000; ++i) ++chosen[policy->Select({}, {decode, {}}).decode];
  for (const auto& [at, times] : chosen) EXPECT_NEAR(times, 1000, 200) << at;  // 7 sigma
}

// Whatever the loads: no worker with fewer requests was passed over, and targets are distinct and in order.
TEST(LeastLoadedTest, IsNeverBeaten) {
  const uint64_t seed = TestSeed();
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
    const Selection selection = policy->Select({}, {decode, prefill});
    for (const WorkerState& worker : decode)
      EXPECT_LE(decode[selection.decode].requests(), worker.requests());
    EXPECT_EQ(selection.prefill.size(), std::min(kMaxPrefillTargets, prefill.size()));
    for (size_t i = 1; i < selection.prefill.size(); ++i) {
      EXPECT_LE(prefill[selection.prefill[i - 1]].queued_tokens, prefill[selection.prefill[i]].queued_tokens);
      EXPECT_NE(selection.prefill[i - 1], selection.prefill[i]);
    }
  }
}

TEST(RoundRobinTest, TakesEachInTurn) {
  auto policy = *MakePolicy("round_robin", 0);
  const States decode = {Worker(0, 9), Worker(1)};
  const States prefill = {Worker(0), Worker(1)};
  EXPECT_EQ(policy->Select({}, {decode, prefill}).decode, 0u);
  const Selection second = policy->Select({}, {decode, prefill});
  EXPECT_EQ(second.decode, 1u);
  EXPECT_EQ(second.prefill, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(policy->Select({}, {decode, prefill}).decode, 0u);
}

// A policy sees the same workers in another order and names the same ones.
TEST(PolicyTest, TheOrderOfTheListDoesNotMatter) {
  const uint64_t seed = TestSeed();
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
      const Selection a = one->Select({}, {workers, workers});
      const Selection b = other->Select({}, {turned, turned});
      EXPECT_EQ(workers[a.decode].slot, turned[b.decode].slot) << name;
      ASSERT_EQ(a.prefill.size(), b.prefill.size()) << name;
      for (size_t i = 0; i < a.prefill.size(); ++i) {
        EXPECT_EQ(workers[a.prefill[i]].slot, turned[b.prefill[i]].slot) << name;
      }
    }
  }
}

// A fleet at random, its prompts booked and its prefixes held here and there.
struct View {
  States decode, prefill;
  std::vector<std::vector<Booked>> booked;
  Request request;

  Pools pools() const { return {.decode = decode, .prefill = prefill, .now = request.arrival}; }
};

View RandomView(const std::function<int(int)>& draw) {
  View view;
  const absl::Time now = absl::UnixEpoch() + absl::Seconds(1000);
  view.request = {.prompt_tokens = 1 + draw(40'000), .max_tokens = 100, .arrival = now};
  for (int i = 0; i <= draw(6); ++i) {
    view.decode.push_back(Worker(static_cast<uint32_t>(100 + i), 1 + draw(30)));
    view.decode.back().context_tokens = draw(300'000);
  }
  const int workers = 1 + draw(8);
  view.booked.resize(static_cast<size_t>(workers));
  for (int i = 0; i < workers; ++i) {
    WorkerState worker = Worker(static_cast<uint32_t>(i));
    worker.matched_blocks = draw(3) == 0 ? draw(static_cast<int>(view.request.prompt_tokens / 16) + 1) : 0;
    worker.confirmed_blocks = worker.matched_blocks;
    worker.can_fetch = draw(2) == 0;
    worker.serves_fetches = true;
    auto& booked = view.booked[static_cast<size_t>(i)];
    for (int k = draw(6); k > 0; --k) {
      const absl::Time since = now - absl::Milliseconds(draw(2000));
      booked.push_back({.due = since + absl::Milliseconds(draw(5000)),
                        .tokens = draw(20'000),
                        .cached = draw(20'000),
                        .since = since,
                        .request = static_cast<uint64_t>(k)});
      worker.queued_tokens += booked.back().tokens;
    }
    worker.waiting = std::ssize(booked);
    worker.busy_since = now - absl::Milliseconds(draw(500));
    worker.booked = booked;
    view.prefill.push_back(worker);
  }
  return view;
}

WorkerSlot FirstOf(const Selection& selection, const View& view) {
  return selection.prefill.empty() ? view.decode[selection.decode].slot
                                   : view.prefill[selection.prefill[0]].slot;
}

class PrefixAffinityProperty : public ::testing::Test {
 protected:
  const uint64_t seed_ = TestSeed();
  uint64_t draws_ = 0;
  const std::function<int(int)> draw_ = [this](int below) {
    return static_cast<int>(UniformAt(seed_, draws_++) * below);
  };
  std::unique_ptr<Policy> policy() const { return *MakePolicy("prefix_affinity", seed_); }
};

// The chosen worker is given more of the prompt's prefix: it is chosen still. What waits there goes first in
// any case: among prompts with deadlines, one that has less to compute may be due later, and wait longer.
TEST_F(PrefixAffinityProperty, IsMonotoneInOverlap) {
  SCOPED_TRACE(seed_);
  for (int round = 0; round < 500; ++round) {
    View view = RandomView(draw_);
    for (WorkerState& worker : view.prefill) {
      worker.can_fetch = false;
      worker.booked = {};
    }
    const Selection before = policy()->Select(view.request, view.pools());
    if (before.prefill.empty()) continue;
    WorkerState& chosen = view.prefill[before.prefill[0]];
    chosen.matched_blocks = std::min(view.request.prompt_tokens / 16, chosen.matched_blocks + 1 + draw_(500));
    const Selection after = policy()->Select(view.request, view.pools());
    ASSERT_FALSE(after.prefill.empty());
    EXPECT_EQ(after.prefill[0], before.prefill[0]) << "round " << round;
    EXPECT_LE(after.predicted.prefill, before.predicted.prefill);
  }
}

// Another worker is given more to do: it is not chosen for that.
TEST_F(PrefixAffinityProperty, IsMonotoneInLoad) {
  SCOPED_TRACE(seed_);
  for (int round = 0; round < 500; ++round) {
    View view = RandomView(draw_);
    const Selection before = policy()->Select(view.request, view.pools());
    const size_t at = static_cast<size_t>(draw_(static_cast<int>(view.prefill.size())));
    if (before.prefill.empty() || before.prefill[0] == at) continue;
    WorkerState& other = view.prefill[at];
    other.queued_tokens += 1 + draw_(50'000);
    other.waiting += 1 + draw_(5);
    const Selection after = policy()->Select(view.request, view.pools());
    EXPECT_NE(FirstOf(after, view), other.slot) << "round " << round;
  }
}

// Numbers that no honest worker reports: an answer in range all the same, and finite predictions.
TEST_F(PrefixAffinityProperty, HasNoIntegerTraps) {
  SCOPED_TRACE(seed_);
  constexpr int64_t kBad[] = {INT64_MIN, -1, 0, 1, INT32_MAX, int64_t{1} << 40, INT64_MAX / 64};
  for (int round = 0; round < 500; ++round) {
    View view = RandomView(draw_);
    const auto spoil = [&](int64_t& field) {
      if (draw_(3) == 0) field = kBad[draw_(7)];
    };
    for (States* states : {&view.prefill, &view.decode}) {
      for (WorkerState& worker : *states) {
        spoil(worker.matched_blocks);
        spoil(worker.confirmed_blocks);
        spoil(worker.disk_blocks);
        spoil(worker.queued_tokens);
        spoil(worker.context_tokens);
        spoil(worker.free_blocks);
        spoil(worker.leased_blocks);
        spoil(worker.total_blocks);
        if (draw_(3) == 0) worker.running = draw_(2) == 0 ? -1 : INT32_MAX;
      }
    }
    spoil(view.request.prompt_tokens);
    const Selection selection = policy()->Select(view.request, view.pools());
    ASSERT_LT(selection.decode, view.decode.size());
    for (const size_t at : selection.prefill) ASSERT_LT(at, view.prefill.size());
    ASSERT_TRUE(std::isfinite(selection.predicted.ttft())) << "round " << round;
    ASSERT_GE(selection.uncached_tokens, 0);
  }
}

TEST_F(PrefixAffinityProperty, IsAFunctionOfItsSeedAndNotOfTheOrder) {
  SCOPED_TRACE(seed_);
  auto one = policy(), other = policy();
  for (int round = 0; round < 500; ++round) {
    const View view = RandomView(draw_);
    View turned = view;
    std::reverse(turned.prefill.begin(), turned.prefill.end());
    std::reverse(turned.decode.begin(), turned.decode.end());
    const Selection a = one->Select(view.request, view.pools());
    const Selection b = other->Select(turned.request, turned.pools());
    EXPECT_EQ(view.decode[a.decode].slot, turned.decode[b.decode].slot);
    EXPECT_EQ(FirstOf(a, view), FirstOf(b, turned));
    EXPECT_EQ(a.fetch_from, b.fetch_from);
  }
}

// The order that it predicts by is the prefill workers' own, by the same SLO and tail share.
TEST(PrefixAffinityTest, WhatIsDueFollowsTheSloAndTheTailShare) {
  const States decode = {Worker(0, 10)}, prefill = {Worker(1)};
  // 1.2 s by the prior: over a fifth of both SLOs, and not too late for either.
  const Request request = {.prompt_tokens = 20'000, .max_tokens = 100};
  for (const double slo : {2.0, 4.0}) {
    const auto targets = forecast::QueueTargets::For(slo, 0);
    const Selection selection =
        (*MakePolicy("prefix_affinity", 1, targets))->Select(request, {decode, prefill});
    ASSERT_FALSE(selection.prefill.empty());
    EXPECT_EQ(selection.due, request.arrival + absl::Seconds(targets.target)) << slo;
    const auto tail = forecast::QueueTargets::For(slo, 1);
    EXPECT_EQ((*MakePolicy("prefix_affinity", 1, tail))->Select(request, {decode, prefill}).due,
              request.arrival);
  }
}

TEST(PrefixAffinityTest, ASessionStaysTogetherAmongEqualsOnly) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode;
  for (uint32_t i = 0; i < 6; ++i) decode.push_back(Worker(i, 10));
  const States prefill = {Worker(10), Worker(11), Worker(12)};
  std::map<size_t, int> homes;
  for (uint64_t session = 1; session <= 60; ++session) {
    const Request request = {.prompt_tokens = 5000, .max_tokens = 100, .session = session};
    const Selection first = policy->Select(request, {decode, prefill});
    for (int turn = 0; turn < 5; ++turn) {
      const Selection again = policy->Select(request, {decode, prefill});
      ASSERT_EQ(again.decode, first.decode) << "session " << session;
      ASSERT_EQ(again.prefill.front(), first.prefill.front()) << "session " << session;
    }
    ++homes[first.decode];
    States busy = decode;
    busy[first.decode].running = 200;
    ASSERT_NE(policy->Select(request, {busy, prefill}).decode, first.decode);
  }
  EXPECT_EQ(homes.size(), 6u) << "sessions spread";
}

TEST(PrefixAffinityTest, AFullPoolCostsTheWaitForItsBlocks) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode = {Worker(0, 10), Worker(1, 12)};
  for (WorkerState& worker : decode) worker.total_blocks = 1000;
  const Request request = {.prompt_tokens = 3200, .max_tokens = 100};
  decode[0].free_blocks = 50, decode[0].cached_blocks = 50;
  decode[1].free_blocks = 500;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 1u);
  decode[0].cached_blocks = 500;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u) << "cached blocks can be had";
  decode[0].cached_blocks = 50;
  decode[0].matched_blocks = 200;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u) << "what it holds it need not find room for";
}

TEST(PrefixAffinityTest, LeasesThatWouldBreakCostWhatComputingThemTakes) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode = {Worker(0, 10), Worker(1, 11)};
  for (WorkerState& worker : decode) {
    worker.total_blocks = 1000;
    worker.cached_blocks = 600;
  }
  const Request request = {.prompt_tokens = 3200, .max_tokens = 100};
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u);
  decode[0].leased_blocks = 300;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u) << "there is room beside the leased ones";
  decode[0].leased_blocks = 500;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 1u);
  decode[1].leased_blocks = 500;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u) << "everywhere alike";
  decode[0].leased_blocks = 600;
  decode[0].matched_blocks = 200;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u) << "what it holds needs no room";
  // Prefill workers likewise.
  States prefill = {Worker(2, 0), Worker(3, 0)};
  for (WorkerState& worker : prefill) worker.cached_blocks = worker.total_blocks = 300;
  for (const size_t full : {0u, 1u}) {
    prefill[full].leased_blocks = 250;
    prefill[1 - full].leased_blocks = 0;
    const Selection selection = policy->Select(request, {Workers(decode).subspan(1, 1), prefill});
    ASSERT_FALSE(selection.prefill.empty());
    EXPECT_EQ(selection.prefill.front(), 1 - full);
  }
}

TEST(PrefixAffinityTest, WithoutPrefillWorkersTheDecodeWorkersOwnQueueAndCacheCount) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode = {Worker(0, 10), Worker(1, 11)};
  const Request request = {.prompt_tokens = 3200, .max_tokens = 100};
  decode[0].queued_tokens = 20'000;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 1u) << "a second of prompts waits on the other";
  decode[1].queued_tokens = 19'000;
  decode[0].matched_blocks = 190;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 1u)
      << "what it is only expected to hold is computed";
  decode[0].confirmed_blocks = 190;
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u) << "nearly nothing to compute";
}

TEST(PrefixAffinityTest, APromptThatIsToBeComputedApartGoesToAPrefillWorker) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode = {Worker(0)}, prefill = {Worker(1, 0, 30'000)};
  decode[0].matched_blocks = decode[0].confirmed_blocks = 190;
  Request request = {.prompt_tokens = 3200, .max_tokens = 100};
  EXPECT_TRUE(policy->Select(request, {decode, prefill}).prefill.empty()) << "nearly all of it is there";
  request.prefill_apart = true;
  EXPECT_EQ(policy->Select(request, {decode, prefill}).prefill, std::vector<size_t>{0});
  EXPECT_TRUE(policy->Select(request, {decode, {}}).prefill.empty()) << "there is none";
}

// The KV of a prompt that another request brings to the decode worker need not be sent twice.
TEST(PrefixAffinityTest, WhatADecodeWorkerIsExpectedToHoldNeedNotBeSent) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode = {Worker(0, 10), Worker(1, 10)};
  const States prefill = {Worker(2)};
  const Request request = {.prompt_tokens = 32'000, .max_tokens = 100};
  for (size_t holder : {0, 1}) {
    decode[holder].matched_blocks = 1900;
    EXPECT_EQ(policy->Select(request, {decode, prefill}).decode, holder);
    decode[holder].matched_blocks = 0;
  }
}

// A prefix on disk is worth less than one in memory, and more than none, by what the worker says that loading
// takes.
TEST(PrefixAffinityTest, ADiskIsPricedByItsRate) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  const Request request = {.prompt_tokens = 3200, .max_tokens = 100};
  States decode = {Worker(0), Worker(1)};
  const auto on_disk = [](WorkerState& worker, double token) {
    worker.disk_slot = WorkerSlot(100 + worker.slot.value());
    worker.disk_blocks = 190;
    worker.disk_cost = {.base = 1e-3, .token = token};
  };
  // A few microseconds a token: nearly as good as memory.
  for (size_t holder : {0, 1}) {
    decode = {Worker(0), Worker(1)};
    on_disk(decode[holder], 5e-6);
    const Selection selection = policy->Select(request, {decode, {}});
    EXPECT_EQ(selection.decode, holder);
    EXPECT_EQ(selection.uncached_tokens, 3200 - 190 * 16);
    EXPECT_NEAR(selection.predicted.fetch, 1e-3 + 190 * 16 * 5e-6, 1e-9);
    // The other has it in memory.
    decode[1 - holder].matched_blocks = decode[1 - holder].confirmed_blocks = 190;
    EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 1 - holder);
  }
  // A disk slower than computing is as none.
  decode = {Worker(0), Worker(1, 1)};
  on_disk(decode[1], 1);
  EXPECT_EQ(policy->Select(request, {decode, {}}).decode, 0u);
  // Prefill workers alike, without naming a peer.
  decode = {Worker(0)};
  States prefill = {Worker(2), Worker(3)};
  on_disk(prefill[1], 5e-6);
  const Selection selection = policy->Select(request, {decode, prefill});
  ASSERT_FALSE(selection.prefill.empty());
  EXPECT_EQ(selection.prefill[0], 1u);
  EXPECT_FALSE(selection.fetch_from.has_value());
  EXPECT_EQ(selection.fetch_blocks, 0);
  EXPECT_EQ(selection.uncached_tokens, 3200 - 190 * 16);
  EXPECT_EQ(selection.reason, Reason::kPrefix);
}

// Blocks that only a decode worker holds are fetched from there: the answer of the last turn.
TEST(PrefixAffinityTest, FetchesFromADecodeWorkerToo) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode = {Worker(0, 40), Worker(1, 0)};
  States prefill = {Worker(2), Worker(3)};
  for (WorkerState& worker : prefill) worker.can_fetch = true;
  decode[0].matched_blocks = 200;
  decode[0].serves_fetches = true;
  const Request request = {.prompt_tokens = 4000, .max_tokens = 100};
  EXPECT_FALSE(policy->Select(request, {decode, prefill}).fetch_from.has_value())
      << "a speculative block is not there";
  decode[0].confirmed_blocks = 190;
  decode[0].serves_fetches = false;
  EXPECT_FALSE(policy->Select(request, {decode, prefill}).fetch_from.has_value()) << "it serves none";
  decode[0].serves_fetches = true;
  const Selection selection = policy->Select(request, {decode, prefill});
  ASSERT_FALSE(selection.prefill.empty());
  EXPECT_EQ(selection.reason, Reason::kFetch);
  EXPECT_EQ(selection.fetch_from, WorkerSlot(0));
  EXPECT_EQ(selection.fetch_blocks, 190);
  EXPECT_EQ(selection.uncached_tokens, 4000 - 190 * 16);
  // Without prefill workers the decode worker fetches itself, if it can.
  States free = {Worker(1, 0)};
  free[0].can_fetch = true;
  WorkerState holder = Worker(0, 400);
  holder.serves_fetches = true;
  holder.matched_blocks = holder.confirmed_blocks = 190;
  const Selection local = policy->Select(request, {.decode = States{free[0], holder}});
  ASSERT_TRUE(local.prefill.empty());
  ASSERT_EQ(local.decode, 0u) << "the holder is far too busy";
  EXPECT_EQ(local.fetch_from, WorkerSlot(0));
  EXPECT_EQ(local.fetch_blocks, 190);
}

// Blocks that only a draining worker holds are fetched while it is there.
TEST(PrefixAffinityTest, FetchesFromAWorkerThatLeavesIfNobodyElseHasIt) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  States decode = {Worker(1, 0)};
  decode[0].can_fetch = decode[0].serves_fetches = true;
  States leaving = {Worker(0, 40)};
  leaving[0].matched_blocks = leaving[0].confirmed_blocks = 190;
  const Request request = {.prompt_tokens = 4000, .max_tokens = 100};
  Pools pools = {.decode = decode, .leaving = leaving};
  EXPECT_FALSE(policy->Select(request, pools).fetch_from.has_value()) << "it serves none";
  leaving[0].serves_fetches = true;
  const Selection selection = policy->Select(request, pools);
  EXPECT_EQ(selection.decode, 0u);
  EXPECT_EQ(selection.fetch_from, WorkerSlot(0));
  EXPECT_EQ(selection.fetch_blocks, 190);
  // A prefill worker has it, too: it stays.
  States prefill = {Worker(2)};
  prefill[0].serves_fetches = true;
  prefill[0].queued_tokens = 100'000;
  prefill[0].matched_blocks = prefill[0].confirmed_blocks = 190;
  pools.prefill = prefill;
  EXPECT_EQ(policy->Select(request, pools).fetch_from, WorkerSlot(2));
}

// A worker that comes back on another slot, after a gap in its events, is known; another life is not.
TEST(PrefixAffinityTest, WhatIsLearntFollowsTheWorker) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  for (int i = 0; i < 50; ++i) {
    for (const auto& [slot, token] : {std::pair<uint32_t, double>{0, 200e-6}, {1, 20e-6}}) {
      Outcome outcome;
      outcome.prefill = WorkerSlot(slot);
      outcome.uncached_tokens = 500 + 40 * i;
      outcome.compute_seconds = 0.01 + token * static_cast<double>(outcome.uncached_tokens);
      policy->Observe(outcome);
    }
  }
  const auto leave = [&](uint32_t slot, uint64_t incarnation) {
    policy->OnWorkerLeft(WorkerSlot(slot), Incarnation(incarnation));
    policy->OnSlotFreed(WorkerSlot(slot));
  };
  leave(0, 70);
  leave(1, 71);
  // They come back the other way round.
  policy->OnWorkerBack(WorkerSlot(1), Incarnation(70));
  policy->OnWorkerBack(WorkerSlot(0), Incarnation(71));
  const States decode = {Worker(9, 50)};
  const Request request = {.prompt_tokens = 1000};
  const Selection back = policy->Select(request, {decode, States{Worker(0), Worker(1)}});
  EXPECT_EQ(back.prefill[0], 0u);
  EXPECT_NEAR(back.predicted.prefill, 0.03, 0.005);
  leave(0, 71);
  policy->OnWorkerBack(WorkerSlot(0), Incarnation(99));
  EXPECT_EQ(policy->Select(request, {decode, States{Worker(0)}}).predicted.prefill,
            policy->Select(request, {decode, States{Worker(5)}}).predicted.prefill)
      << "a stranger is taken for an average one";
}

TEST(PrefixAffinityTest, LearnsWhichWorkerIsSlow) {
  auto policy = *MakePolicy("prefix_affinity", 1);
  for (int i = 0; i < 50; ++i) {
    for (const auto& [slot, token] : {std::pair<uint32_t, double>{0, 200e-6}, {1, 20e-6}}) {
      Outcome outcome;
      outcome.prefill = WorkerSlot(slot);
      outcome.uncached_tokens = 500 + 40 * i;
      outcome.compute_seconds = 0.01 + token * static_cast<double>(outcome.uncached_tokens);
      policy->Observe(outcome);
    }
  }
  const States decode = {Worker(9, 50)};
  const Request request = {.prompt_tokens = 1000};
  const States prefill = {Worker(0), Worker(1)};
  const Selection selection = policy->Select(request, {decode, prefill});
  EXPECT_EQ(selection.prefill[0], 1u);
  EXPECT_NEAR(selection.predicted.prefill, 0.03, 0.005);
  policy->OnSlotFreed(WorkerSlot(1));
  EXPECT_GT(policy->Select(request, {decode, prefill}).predicted.prefill, 0.032)
      << "a stranger is an average worker";
}

// Two nodes with a prefill and a decode worker each. Nothing else tells them apart.
class NodesTest : public ::testing::Test {
 protected:
  NodesTest() {
    for (uint32_t node = 0; node < 2; ++node) {
      // Answers run, so that the prompt is not computed beside them.
      decode_.push_back(Worker(node, 20));
      prefill_.push_back(Worker(10 + node));
      prefill_.back().key = 10 + node;
      decode_.back().link_domain = prefill_.back().link_domain = 1 + node;
    }
  }
  Selection Place(uint64_t seed) {
    return (*MakePolicy("prefix_affinity", seed))->Select(request_, {decode_, prefill_});
  }
  // The share of many placements that stay within a node.
  double NearShare() {
    int near = 0;
    for (uint64_t seed = 0; seed < kRounds; ++seed) {
      const Selection selection = Place(seed);
      EXPECT_FALSE(selection.prefill.empty());
      near += !selection.prefill.empty() && selection.prefill.front() == selection.decode ? 1 : 0;
    }
    return static_cast<double>(near) / kRounds;
  }

  static constexpr uint64_t kRounds = 200;
  Request request_ = {.prompt_tokens = 16'000, .max_tokens = 100};
  States decode_, prefill_;
};

TEST_F(NodesTest, PromptsAreComputedOnTheNodeOfTheirDecodeWorker) {
  EXPECT_EQ(NearShare(), 1);
  for (WorkerState& worker : decode_) worker.link_domain = 0;
  EXPECT_NEAR(NearShare(), 0.5, 0.15) << "nothing tells them apart";
}

TEST_F(NodesTest, AQueueThatCostsMoreThanTheTransferSendsThemAway) {
  prefill_[0].queued_tokens = prefill_[1].queued_tokens = 0;
  decode_[1].running = 200;  // answers go to the first node,
  prefill_[0].queued_tokens = 500'000;
  prefill_[0].waiting = 30;
  const Selection selection = Place(1);
  EXPECT_EQ(selection.decode, 0u);
  ASSERT_FALSE(selection.prefill.empty());
  EXPECT_EQ(selection.prefill.front(), 1u) << "where nothing waits";
  EXPECT_GT(selection.predicted.ship, 0);
}

TEST_F(NodesTest, MeasuredRatesOverruleDomains) {
  // A node's own link is broken, the other one is not.
  const std::vector<PeerCost> slow_near = {{.peer = 10, .base = 0.5, .token = 1e-3},
                                           {.peer = 11, .base = 0, .token = 1e-7}};
  const std::vector<PeerCost> usual = {{.peer = 10, .base = 0, .token = 1e-7},
                                       {.peer = 11, .base = 0, .token = 1e-7}};
  decode_[0].peer_costs = slow_near;
  decode_[1].peer_costs = usual;
  decode_[1].running = 200;
  const Selection selection = Place(1);
  EXPECT_EQ(selection.decode, 0u);
  ASSERT_FALSE(selection.prefill.empty());
  EXPECT_EQ(selection.prefill.front(), 1u);
  EXPECT_NEAR(selection.predicted.ship, 16'000e-7, 1e-4);
}

TEST_F(NodesTest, ADecodeWorkerWithASlowLinkIsPassedOver) {
  const std::vector<PeerCost> slow = {{.peer = 10, .base = 0.5, .token = 1e-3},
                                      {.peer = 11, .base = 0.5, .token = 1e-3}};
  const std::vector<PeerCost> fast = {{.peer = 10, .base = 0, .token = 1e-7},
                                      {.peer = 11, .base = 0, .token = 1e-7}};
  decode_[0].peer_costs = slow;
  decode_[1].peer_costs = fast;
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(Place(seed).decode, 1u) << seed;
}

TEST_F(NodesTest, AFetchComesFromTheNodeOfItsReader) {
  for (WorkerState& worker : decode_) {
    worker.serves_fetches = true;
    worker.confirmed_blocks = worker.matched_blocks = 0;
  }
  // Both nodes have a decode worker that holds the prefix, besides the one that answers.
  for (uint32_t node = 0; node < 2; ++node) {
    decode_.push_back(Worker(20 + node, 300));
    decode_.back().link_domain = 1 + node;
    decode_.back().serves_fetches = true;
    decode_.back().matched_blocks = decode_.back().confirmed_blocks = 900;
  }
  for (WorkerState& worker : prefill_) worker.can_fetch = true;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Selection selection = Place(seed);
    ASSERT_FALSE(selection.prefill.empty());
    ASSERT_TRUE(selection.fetch_from.has_value());
    EXPECT_EQ(selection.fetch_from->value(), 20 + selection.prefill.front()) << seed;
  }
}

TEST(PrefixAffinityTest, LocalPrefillIsPricedByTheChunkThatTheWorkerTells) {
  const Request request = {.prompt_tokens = 2048};
  const auto wait = [&](int64_t chunk_tokens) {
    States decode = {Worker(0, 4)};
    decode[0].chunk_tokens = chunk_tokens;
    return (*MakePolicy("prefix_affinity", 1))->Select(request, {decode, {}}).predicted.wait;
  };
  // One step of the running answers for each chunk, and one to begin with.
  EXPECT_NEAR(wait(64) / wait(256), (2048 / 64 + 1) / (2048 / 256 + 1.0), 1e-6);
  EXPECT_EQ(wait(0), wait(256)) << "a worker that does not say has the default";
}

TEST(MakePolicyTest, NamesWhatIsKnown) {
  const auto policy = MakePolicy("fastest", 0);
  EXPECT_TRUE(absl::IsInvalidArgument(policy.status()));
  EXPECT_NE(policy.status().message().find("prefix_affinity, least_loaded or round_robin"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace baton::router::placement
