// The scenes in which routers of the field sent everything to one worker, or threw all affinity away.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/seed.h"
#include "tests/unit/lab/simulate/scene.h"

namespace baton::lab::simulate {
namespace {

constexpr double kMaxOverMean = 1.3;

double MaxOverMean(const std::vector<double>& load) {
  const double sum = std::accumulate(load.begin(), load.end(), 0.0);
  return *std::max_element(load.begin(), load.end()) * static_cast<double>(load.size()) / sum;
}

// A prefill worker's load is the time that it is busy, so a slow one is not asked for more than its share;
// from `since` on, for one that joins late.
double Imbalance(const RunResult& run, int workers, double since) {
  std::vector<double> busy(workers, 0);
  for (const RequestRecord& record : run.records) {
    if (record.prefill >= 0 && record.placed >= since) busy[record.prefill] += record.computed - record.began;
  }
  return MaxOverMean(busy);
}

RunResult ExpectSpreadAndCached(const FleetModel& model, const std::vector<Request>& load, uint64_t seed,
                                double since = 0) {
  RunResult run;
  const Measures ours = PlayPolicy("prefix_affinity", model, load, seed, &run);
  EXPECT_LE(Imbalance(run, model.prefill_workers, since), kMaxOverMean);
  for (const std::string& name : kField) {
    EXPECT_GE(ours.hit_rate, 0.99 * PlayPolicy(name, model, load, seed).hit_rate) << name;
  }
  return run;
}

TEST(ScenesTest, OneSystemPromptForAll) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  ExpectSpreadAndCached(FleetModel(), LoadMaker(seed).SharedPrompt(2000, 30, 6, 3), seed);
}

TEST(ScenesTest, SingleTurnsOnOnePrefillAndFiveDecodeWorkers) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  FleetModel model;
  model.prefill_workers = 1;
  model.decode_workers = 5;
  const std::vector<Request> load = LoadMaker(seed).SharedPrompt(2000, 8, 1, 2);
  const RunResult run = ExpectSpreadAndCached(model, load, seed);
  std::vector<double> decoded(5, 0);
  for (const RequestRecord& record : run.records) ++decoded[record.decode];
  EXPECT_LE(MaxOverMean(decoded), kMaxOverMean);
}

TEST(ScenesTest, PacedSessions) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  ExpectSpreadAndCached(FleetModel(), LoadMaker(seed).Sessions(600, 6, 6, 10), seed);
}

// All 64 are there before the first is computed, and nothing can be fetched that is not computed: with as
// many hits as from a single computation, and with a limit on the load, no placement serves them. Whoever
// computes the prompt `n` times has at least one worker busy for all of a prompt, and at most 64 - n hits. So
// ours, which keeps the limit, is held against the hits of those that keep it too, and everybody's TTFT.
TEST(ScenesTest, ABurstOfEqualPrompts) {
  const FleetModel model;
  const std::vector<uint64_t> chain = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  std::vector<Request> load;
  for (int i = 0; i < 64; ++i) load.push_back(LoadMaker::Make(1e-3 * i, chain, 100, 32));
  const int64_t tokens = load[0].prompt_tokens, cached = model.block_tokens * std::ssize(chain);
  const double whole = model.PrefillSeconds(tokens, 0), rest = model.PrefillSeconds(tokens - cached, cached);
  for (int n = 1; 64 - n >= 0.99 * 63; ++n) {
    EXPECT_GT(8 * whole / (n * whole + (64 - n) * rest), kMaxOverMean)
        << n << " computations, spread at best";
  }
  RunResult run;
  const Measures ours = PlayPolicy("prefix_affinity", model, load, 1, &run);
  EXPECT_LE(Imbalance(run, model.prefill_workers, 0), kMaxOverMean);
  // Each prefill worker computes the prompt once, and no decode worker does.
  EXPECT_EQ(std::count_if(run.records.begin(), run.records.end(),
                          [](const RequestRecord& record) { return record.cached_tokens > 0; }),
            64 - 8);
  for (const std::string& name : kField) {
    RunResult theirs;
    const Measures measures = PlayPolicy(name, model, load, 1, &theirs);
    EXPECT_LE(ours.ttft.p99, 1.1 * measures.ttft.p99) << name;
    if (Imbalance(theirs, model.prefill_workers, 0) > kMaxOverMean) continue;
    EXPECT_GE(ours.hit_rate, 0.99 * measures.hit_rate) << name;
  }
}

// A small model on a busy machine: bare steps of which an answer takes several times as long, times that vary
// by a factor of two, and a worker that stands still now and then.
FleetModel Noisy(int decode_workers) {
  FleetModel model;
  model.prefill_workers = 1;
  model.decode_workers = decode_workers;
  model.prefill_base = 0.2e-3;
  model.prefill_token = 15e-6;
  model.step_base = 1e-3;
  model.step_sequence = 0.1e-3;
  model.step_context = 0.1e-6;
  model.block_tokens = 16;
  model.noise = 0.5;
  model.measured = 0.2;
  model.stall_every = 60;
  return model;
}

// Bursts of short prompts that have nothing in common, each after the one before has ended, and some alone
// between them.
TEST(ScenesTest, BurstsOnAlikeDecodeWorkers) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  for (const int workers : {2, 4}) {
    std::vector<Request> load;
    std::vector<std::pair<size_t, size_t>> bursts;  // the first and the last
    double at = 0;
    for (const int size : {8, 32, 64, 64, 128, 64, 128}) {
      bursts.emplace_back(load.size(), load.size() + size);
      for (int i = 0; i < size; ++i) load.push_back(LoadMaker::Make(at + 1e-4 * i, {}, 60, 40));
      at += 20;
      for (int i = 0; i < 30; ++i) load.push_back(LoadMaker::Make(at += 1, {}, 60, 40));
      at += 20;
    }
    RunResult run;
    PlayPolicy("prefix_affinity", Noisy(workers), load, seed, &run);
    for (const auto& [first, last] : bursts) {
      std::vector<double> answers(static_cast<size_t>(workers), 0);
      for (size_t i = first; i < last; ++i) ++answers[static_cast<size_t>(run.records[i].decode)];
      // One more than the mean is never too many.
      const double one_more = 1 + static_cast<double>(workers) / static_cast<double>(last - first);
      EXPECT_LE(MaxOverMean(answers), std::max(kMaxOverMean, one_more))
          << workers << " workers, burst of " << last - first;
    }
  }
}

// One decode worker whose steps meet the target with some 70 answers, and half as much again to do as it can.
TEST(ScenesTest, TheBatchKeepsTheTimePerToken) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  FleetModel model;
  model.prefill_workers = 2;
  model.decode_workers = 1;
  model.step_sequence = 0.5e-3;
  std::vector<Request> load;
  for (int i = 0; i < 1500; ++i) load.push_back(LoadMaker::Make(0.08 * i, {}, 500, 200));
  PolicyUnderTest ours = *FindPolicy("prefix_affinity", model);
  ours.default_ttft = Slo().ttft;
  const auto play = [&](bool in_time) {
    ours.in_time = in_time;
    return Measure("", Simulation(model, ours, load, seed).Run([](int64_t) {}), Slo(), model.block_tokens);
  };
  const Measures with = play(true), without = play(false);
  EXPECT_GT(with.goodput, 5 * without.goodput);
  EXPECT_LT(with.tpot.p90, Slo().tpot);
  EXPECT_GT(without.tpot.p90, Slo().tpot) << "the control";
}

TEST(ScenesTest, ASlowWorkerGetsLess) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  FleetModel model;
  model.prefill_slowness = {4};
  const std::vector<Request> load = LoadMaker(seed).Sessions(600, 10, 5, 10);
  const RunResult run = ExpectSpreadAndCached(model, load, seed);
  // Nobody told the router: it serves about a quarter of what another does, and nobody waits for it.
  const double others = static_cast<double>(std::accumulate(run.prefill_served.begin() + 1,
                                                            run.prefill_served.end(), int64_t{0})) /
                        7;
  EXPECT_LT(static_cast<double>(run.prefill_served[0]), 0.6 * others);
  const double p99 = Measure("", run, Slo(), model.block_tokens).ttft.p99;
  for (const std::string& name : kField) {
    EXPECT_LE(p99, 1.1 * PlayPolicy(name, model, load, seed).ttft.p99) << name;
  }
}

TEST(ScenesTest, AWorkerThatJoinsEmptyIsPutToUse) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  FleetModel model;
  const std::vector<Request> load = LoadMaker(seed).Sessions(800, 10, 5, 10);
  const double joins = load.back().arrival / 2;
  model.prefill_joins = {joins};
  const RunResult run = ExpectSpreadAndCached(model, load, seed, joins);
  double mine = 0, all = 0;
  for (const RequestRecord& record : run.records) {
    if (record.prefill < 0 || record.placed < joins) continue;
    all += record.computed - record.began;
    if (record.prefill == 0) mine += record.computed - record.began;
  }
  EXPECT_GT(mine, 0.6 * all / 8);
}

// Four nodes of eight GPUs, with a fast link inside and a slow network between them: KV stays inside, and
// what decides is what workers tell of domains and hand-offs.
TEST(ScenesTest, HandOffsStayWithinANode) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  FleetModel model;
  model.prefill_workers = 8;
  model.decode_workers = 8;
  model.link_domains = 4;
  model.link_bandwidth = 1e9;
  const std::vector<Request> load = LoadMaker(seed).SharedPrompt(1200, 6, 0, 16);
  const auto near_share = [&](const RunResult& run) {
    int near = 0, shipped = 0;
    for (const RequestRecord& record : run.records) {
      if (record.prefill < 0) continue;
      ++shipped;
      near += model.Domain(record.prefill) == model.Domain(record.decode) ? 1 : 0;
    }
    EXPECT_GT(shipped, 600);
    return static_cast<double>(near) / shipped;
  };
  RunResult told, untold;
  const Measures ours = PlayPolicy("prefix_affinity", model, load, seed, &told);
  const Measures without = PlayPolicy("affinity-anylink", model, load, seed, &untold);
  EXPECT_GT(near_share(told), 0.9);
  EXPECT_LT(near_share(untold), 0.5) << "the control";
  EXPECT_LT(ours.ttft.p50, 0.8 * without.ttft.p50);
  // A node's prefill workers have the work of its decode workers, which go by their own steps: not as even as
  // where any prefill worker will do, and none of them has twice its share.
  EXPECT_LT(Imbalance(told, model.prefill_workers, 0), 2);
}

}  // namespace
}  // namespace baton::lab::simulate
