// The scenes in which routers of the field sent everything to one worker, or threw all affinity away.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/unit/simulate/scene.h"

namespace baton::cli::simulate {
namespace {

constexpr double kMostOverMean = 1.3;

double BestHitRate(const FleetModel& model, const std::vector<Request>& load, uint64_t seed) {
  double best = 0;
  for (const std::string& name : kField) best = std::max(best, PlayPolicy(name, model, load, seed).hit_rate);
  return best;
}

void ExpectSpreadAndCached(const FleetModel& model, const std::vector<Request>& load, uint64_t seed) {
  const Measures ours = PlayPolicy("prefix_affinity", model, load, seed);
  EXPECT_LE(ours.imbalance, kMostOverMean);
  EXPECT_GE(ours.hit_rate, 0.99 * BestHitRate(model, load, seed));
}

TEST(ScenesTest, OneSystemPromptForAll) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  ExpectSpreadAndCached(FleetModel(), LoadMaker(seed).SharedPrompt(2000, 30, 6, 3), seed);
}

TEST(ScenesTest, SingleTurnsOnOnePrefillAndFiveDecodeWorkers) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  FleetModel model;
  model.prefill_workers = 1;
  model.decode_workers = 5;
  const std::vector<Request> load = LoadMaker(seed).SharedPrompt(2000, 8, 1, 2);
  Played run;
  PlayPolicy("prefix_affinity", model, load, seed, &run);
  std::vector<double> decoded(5, 0);
  for (const Ticket& ticket : run.tickets) ++decoded[ticket.decode];
  EXPECT_LE(*std::max_element(decoded.begin(), decoded.end()) * 5, kMostOverMean * 2000);
}

TEST(ScenesTest, PacedSessions) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  ExpectSpreadAndCached(FleetModel(), LoadMaker(seed).Sessions(600, 6, 6, 10), seed);
}

TEST(ScenesTest, ABurstOfEqualPrompts) {
  const FleetModel model;
  const std::vector<uint64_t> chain = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  std::vector<Request> load;
  for (int i = 0; i < 64; ++i) load.push_back(LoadMaker::Make(1e-3 * i, chain, 100, 32));
  const Measures ours = PlayPolicy("prefix_affinity", model, load, 1);
  for (const std::string& name : kField) {
    EXPECT_LE(ours.ttft.p99, 1.1 * PlayPolicy(name, model, load, 1).ttft.p99) << name;
  }
}

TEST(ScenesTest, ASlowWorkerGetsLess) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  FleetModel model;
  model.prefill_slowness = {4};
  const std::vector<Request> load = LoadMaker(seed).Sessions(600, 10, 5, 10);
  Played run;
  const Measures ours = PlayPolicy("prefix_affinity", model, load, seed, &run);
  // Nobody told the router: it serves about a quarter of what another does, and nobody waits for it.
  const double others = static_cast<double>(std::accumulate(run.prefill_served.begin() + 1,
                                                            run.prefill_served.end(), int64_t{0})) /
                        7;
  EXPECT_LT(static_cast<double>(run.prefill_served[0]), 0.6 * others);
  for (const std::string& name : kField) {
    EXPECT_LE(ours.ttft.p99, 1.1 * PlayPolicy(name, model, load, seed).ttft.p99) << name;
  }
}

TEST(ScenesTest, AWorkerThatJoinsEmptyIsPutToUse) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  FleetModel model;
  const std::vector<Request> load = LoadMaker(seed).Sessions(800, 10, 5, 10);
  const double joins = load.back().arrival / 2;
  model.prefill_joins = {joins};
  Played run;
  PlayPolicy("prefix_affinity", model, load, seed, &run);
  std::vector<double> since(8, 0);
  for (const Ticket& ticket : run.tickets) {
    if (ticket.prefill >= 0 && ticket.placed > joins) since[ticket.prefill] += ticket.computed - ticket.began;
  }
  const double mean = std::accumulate(since.begin(), since.end(), 0.0) / 8;
  EXPECT_GT(since[0], 0.6 * mean);
  EXPECT_LE(*std::max_element(since.begin(), since.end()), kMostOverMean * mean);
}

}  // namespace
}  // namespace baton::cli::simulate
