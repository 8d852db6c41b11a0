// Placement among workers of which some were observed at work and others have only measured themselves at
// their start.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "router/placement/policy.h"

namespace baton::router::placement {
namespace {

// A small model on a core: what a bare step takes.
constexpr forecast::StepCost kMeasured = {
    .base = 0.2e-3, .sequence = 0.1e-3, .context = 0.1e-6, .token = 15e-6, .pair = 2e-9};
constexpr int64_t kTurnTokens = 243;
constexpr WorkerSlot kUsed{0}, kStranger{1};

forecast::StepCost Multiple(const forecast::StepCost& cost, double factor) {
  return {.base = cost.base * factor,
          .sequence = cost.sequence * factor,
          .context = cost.context * factor,
          .token = cost.token * factor,
          .pair = cost.pair * factor};
}

// Two decode workers that compute their prompts themselves.
class UsedAndStranger {
 public:
  UsedAndStranger() {
    workers_[0].slot = kUsed;
    workers_[1].slot = kStranger;
  }
  void Introduce(WorkerSlot slot, const forecast::StepCost& cost = kMeasured) {
    policy_->Introduce(slot, cost);
  }
  // An answer behind a prompt of kTurnTokens tokens, which took `factor` times as long as kMeasured says.
  void Observe(WorkerSlot slot, double factor) {
    policy_->Observe(
        {.prefill = slot,
         .decode = slot,
         .uncached_tokens = kTurnTokens,
         .compute_seconds = factor * kMeasured.prefill().Seconds(kTurnTokens, 0),
         .step_seconds = factor * (kMeasured.base + kMeasured.sequence + kMeasured.context * kTurnTokens),
         .batch = 1,
         .context_tokens = kTurnTokens});
  }
  // Blocks of the conversation that lie on the used worker.
  void Hold(int64_t blocks) { workers_[0].matched_blocks = workers_[0].confirmed_blocks = blocks; }
  WorkerSlot Choose() { return workers_[Select(workers_).decode].slot; }
  // The predicted seconds of a prompt of kTurnTokens tokens.
  double Predict(WorkerSlot slot) {
    const std::vector<WorkerState> alone = {workers_[slot.value()]};
    return Select(alone).predicted.prefill;
  }

 private:
  Selection Select(const std::vector<WorkerState>& workers) {
    return policy_->Select({.prompt_tokens = kTurnTokens, .max_tokens = 100, .arrival = now_},
                           {.decode = workers, .now = now_});
  }
  const absl::Time now_ = absl::UnixEpoch() + absl::Seconds(1000);
  std::unique_ptr<Policy> policy_ = *MakePolicy("prefix_affinity", 1);
  std::vector<WorkerState> workers_{2};
};

TEST(MeasuredTest, AConversationStaysThoughItsWorkerIsSlowerThanAStrangerMeasured) {
  for (const double factor : {0.5, 1.0, 2.0, 4.0, 20.0}) {
    UsedAndStranger fleet;
    fleet.Introduce(kUsed);
    fleet.Introduce(kStranger);
    fleet.Hold(kTurnTokens / kBlockTokens);
    for (int turn = 0; turn < 10; ++turn) {
      fleet.Observe(kUsed, factor * (1 + 0.5 * (turn % 3)));
      EXPECT_EQ(fleet.Choose(), kUsed) << factor << " times what was measured, turn " << turn;
    }
  }
}

// As far as a measurement can be trusted that other work on the machine may have met.
TEST(MeasuredTest, AStrangerIsTheFleetTimesTheRatioOfMeasurements) {
  for (const auto& [ratio, least, most] :
       {std::tuple(0.25, 0.25, 0.99), {1.0, 0.99, 1.01}, {3.0, 1.0, 3.0}}) {
    UsedAndStranger fleet;
    fleet.Introduce(kUsed);
    fleet.Introduce(kStranger, Multiple(kMeasured, ratio));
    const auto predicted = [&] { return fleet.Predict(kStranger) / fleet.Predict(kUsed); };
    EXPECT_GE(predicted(), least) << "before anything was observed";
    EXPECT_LE(predicted(), most);
    for (const double factor : {4.0, 5.0, 1.0}) {
      fleet.Observe(kUsed, factor);
      EXPECT_GE(predicted(), least) << factor;
      EXPECT_LE(predicted(), most) << factor;
    }
  }
}

TEST(MeasuredTest, AWorkerThatComesLaterIsComparedToo) {
  UsedAndStranger fleet;
  fleet.Introduce(kUsed);
  for (int i = 0; i < 5; ++i) fleet.Observe(kUsed, 4);
  fleet.Introduce(kStranger, Multiple(kMeasured, 0.25));
  EXPECT_LT(fleet.Predict(kStranger), 0.99 * fleet.Predict(kUsed));
  EXPECT_GE(fleet.Predict(kStranger), 0.25 * fleet.Predict(kUsed));
}

TEST(MeasuredTest, AWorkersOwnObservationsTakeOver) {
  UsedAndStranger fleet;
  fleet.Introduce(kUsed);
  fleet.Introduce(kStranger, Multiple(kMeasured, 0.5));
  for (int i = 0; i < 60; ++i) {
    fleet.Observe(kUsed, 4);
    fleet.Observe(kStranger, 6);
  }
  EXPECT_NEAR(fleet.Predict(kStranger), 1.5 * fleet.Predict(kUsed), 0.3 * fleet.Predict(kUsed));
}

// A worker of an older version measures nothing.
TEST(MeasuredTest, WhereNoMeasurementIsThereToCompareWithAStrangerIsTheFleetsMean) {
  UsedAndStranger fleet;
  for (int i = 0; i < 5; ++i) fleet.Observe(kUsed, 4);
  fleet.Introduce(kStranger);
  EXPECT_NEAR(fleet.Predict(kStranger), fleet.Predict(kUsed), 0.05 * fleet.Predict(kUsed));
}

}  // namespace
}  // namespace baton::router::placement
