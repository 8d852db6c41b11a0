#include "lab/simulate/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/seed.h"
#include "tests/unit/lab/simulate/scene.h"

namespace baton::lab::simulate {
namespace {

TEST(SimulationTest, OneRequestTakesWhatTheModelSays) {
  const FleetModel model;
  const std::vector<Request> load = {LoadMaker::Make(0, {1, 2, 3}, 100, 11)};
  RunResult run;
  PlayPolicy("least_loaded", model, load, 1, &run);
  const RequestRecord& record = run.records[0];
  const double prefill = 15e-3 + 36e-6 * 1636 + 1e-9 * 1636 * 818;
  EXPECT_NEAR(record.ttft(), prefill + 2.5e-3, 1e-9);
  double answer = 0;
  for (int i = 0; i < 10; ++i) answer += 9e-3 + 50e-6 + 50e-9 * (1637 + i);
  EXPECT_NEAR(record.end - record.first_token, answer, 1e-9);
}

// The shape that tests/bench/router/overload_bench finds with real processes.
TEST(SimulationTest, GoodputHoldsUnderAnyLoadWhenNobodyIsServedTooLate) {
  const uint64_t seed = TestSeed() % 1'000'000;
  SCOPED_TRACE(seed);
  const FleetModel model;
  constexpr double kCapacity = 8 / (15e-3 + 36e-6 * 2148 + 1e-9 * 2148 * 1074);
  const auto goodput = [&](double load, double default_ttft) {
    const auto under_test = FindPolicy("prefix_affinity", model);
    BATON_CHECK(under_test.ok());
    PolicyUnderTest with = *under_test;
    with.default_ttft = default_ttft;
    const std::vector<Request> requests =
        LoadMaker(seed).SharedPrompt(static_cast<int>(20 * load * kCapacity), load * kCapacity, 0, 4);
    Simulation simulation(model, with, requests, seed);
    return Measure("", simulation.Run([](int64_t) {}), {}, model.block_tokens).goodput;
  };
  double most = 0;
  for (const double load : {0.5, 1.0, 2.0, 5.0}) most = std::max(most, goodput(load, 2));
  EXPECT_GT(most, 0.85 * kCapacity);
  EXPECT_GE(goodput(10, 2), 0.9 * most);
  EXPECT_LT(goodput(10, 0), 0.5 * most) << "without a deadline nearly all of it comes too late";
}

TEST(SimulationTest, EveryRequestEndsUnderEveryPolicyAndTheSameSeedGivesTheSame) {
  const uint64_t seed = TestSeed() % 1'000'000;
  SCOPED_TRACE(seed);
  FleetModel model;
  model.prefill_blocks = 200;  // next to nothing: fetches and blocks that can't be had
  model.decode_blocks = 400;
  for (const bool cache : {false, true}) {
    model.decode_cache = cache;
    const std::vector<Request> load = LoadMaker(seed).Sessions(60, 4, 5, 3);
    for (const std::string& name : PolicyNames()) {
      RunResult one, other;
      const Measures a = PlayPolicy(name, model, load, seed, &one);
      const Measures b = PlayPolicy(name, model, load, seed, &other);
      EXPECT_EQ(a.goodput, b.goodput) << name;
      for (size_t i = 0; i < load.size(); ++i) {
        const RequestRecord& record = one.records[i];
        ASSERT_EQ(record.end, other.records[i].end) << name;
        ASSERT_GE(record.first_token, record.request->arrival) << name;
        ASSERT_GE(record.end, record.first_token) << name;
        ASSERT_LT(record.cached_tokens, record.request->prompt_tokens) << name;
      }
    }
  }
}

TEST(SimulationTest, NothingBeatsTheIdealHitRate) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const FleetModel model;
  const std::vector<Request> load = LoadMaker(seed).Sessions(100, 5, 6, 8);
  for (const std::string& name : PolicyNames()) {
    const Measures measures = PlayPolicy(name, model, load, seed);
    EXPECT_LE(measures.hit_share, 1 + 1e-9) << name;
    EXPECT_EQ(measures.requests, std::ssize(load)) << name;
  }
  EXPECT_NEAR(PlayPolicy("bound", model, load, seed).hit_share, 1, 0.02);
}

TEST(SimulationTest, APrefixIsFetchedFromABusyHolder) {
  const FleetModel model;
  // A long prefix on one worker, then a burst of prompts that share it: more than one worker should serve,
  // and nobody should compute the prefix again.
  std::vector<uint64_t> prefix;
  for (uint64_t id = 1; id <= 20; ++id) prefix.push_back(id);
  std::vector<Request> load = {LoadMaker::Make(0, prefix, 10, 8)};
  for (uint64_t i = 0; i < 64; ++i) {
    std::vector<uint64_t> chain = prefix;
    chain.push_back(1000 + 2 * i);
    chain.push_back(1001 + 2 * i);
    load.push_back(LoadMaker::Make(10 + 1e-3 * static_cast<double>(i), chain, 10, 8));
  }
  RunResult run;
  const Measures with = PlayPolicy("prefix_affinity", model, load, 1, &run);
  const Measures without = PlayPolicy("affinity-nofetch", model, load, 1);
  EXPECT_GT(with.fetched_share, 0.02);
  EXPECT_EQ(without.fetched_share, 0);
  const auto served = std::count_if(run.prefill_served.begin(), run.prefill_served.end(),
                                    [](int64_t requests) { return requests > 2; });
  EXPECT_GE(served, 6) << "of 8";
}

// Half of the work is in prompts that can't make the SLO even alone.
TEST(SimulationTest, ShortPromptsPayForLongOnesByTheTailShare) {
  constexpr uint64_t kSeed = 11;
  const FleetModel model;
  LoadMaker maker(kSeed);
  std::vector<Request> load = maker.SharedPrompt(4000, 40, 2, 4);
  const std::vector<Request> reports = maker.SharedPrompt(160, 1.6, 2, 80);
  load.insert(load.end(), reports.begin(), reports.end());
  std::stable_sort(load.begin(), load.end(),
                   [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
  const auto play = [&](double tail_share) {
    const auto under_test = FindPolicy("prefix_affinity", model,
                                       forecast::QueueTargets::For(forecast::kDefaultSloTtft, tail_share));
    BATON_CHECK(under_test.ok());
    Simulation simulation(model, *under_test, load, kSeed);
    return Measure("", simulation.Run([](int64_t) {}), Slo(), model.block_tokens);
  };
  const Measures goodput = play(0), between = play(0.9), tail = play(1);
  EXPECT_LT(tail.ttft.p99, 0.9 * goodput.ttft.p99);
  EXPECT_LT(tail.ttft.p99, between.ttft.p99);
  EXPECT_LT(between.ttft.p99, 1.02 * goodput.ttft.p99) << "not worse";
  EXPECT_GT(tail.ttft.p50, goodput.ttft.p50);
}

// A small stretch of what docs/routing.md measures, so that a change that breaks the policy is seen here.
TEST(SimulationTest, ServesMoreWithinTheSloThanTheField) {
  constexpr uint64_t kSeed = 7;
  const FleetModel model;
  LoadMaker maker(kSeed);
  const std::vector<Request> load = maker.Sessions(700, 13, 6, 10);
  const Measures ours = PlayPolicy("prefix_affinity", model, load, kSeed);
  for (const std::string& name : kField) {
    const Measures theirs = PlayPolicy(name, model, load, kSeed);
    EXPECT_GE(ours.ttft_share, theirs.ttft_share) << name;
    EXPECT_GE(ours.hit_rate, 0.97 * theirs.hit_rate) << name;
  }
}

}  // namespace
}  // namespace baton::lab::simulate
