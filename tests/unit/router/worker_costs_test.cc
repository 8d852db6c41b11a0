#include "router/placement/worker_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/random.h"
#include "tests/seed.h"

namespace baton::router::placement {
namespace {

constexpr WorkerSlot kA{0}, kB{1}, kC{2}, kD{3};
constexpr StepFit::Features kStep = {1, 4, 2000};

// Steps of one and the same load, so that all that differs is the workers.
class Steps {
 public:
  void Observe(WorkerSlot slot, double seconds, double beside = 0) {
    costs_.Observe(
        slot, seconds, beside, [](StepFit& fleet, double taken) { fleet.Observe(kStep, taken); },
        [](const StepFit& fleet) { return fleet.Predict(kStep); });
  }
  void Introduce(WorkerSlot slot, double measured) { costs_.Introduce(slot, {measured, 0, 0}, measured); }
  double Seconds(WorkerSlot slot) const { return costs_.factor(slot) * costs_.fleet().Predict(kStep); }
  double Ratio(WorkerSlot slot, WorkerSlot other) const { return Seconds(slot) / Seconds(other); }
  WorkerCosts<StepFit>& costs() { return costs_; }

 private:
  WorkerCosts<StepFit> costs_{{10e-3, 50e-6, 50e-9}};
};

TEST(WorkerCostsTest, OneSlowAnswerStarvesNobody) {
  Steps steps;
  for (int i = 0; i < 20; ++i) steps.Observe(kA, 1e-3);
  steps.Observe(kB, 8e-3);
  EXPECT_LT(steps.Ratio(kB, kA), 1.3);
  for (int i = 0; i < 20; ++i) {
    steps.Observe(kA, 1e-3);
    steps.Observe(kB, 1e-3);
  }
  EXPECT_NEAR(steps.Ratio(kB, kA), 1, 0.1);
}

TEST(WorkerCostsTest, AStallIsForgotten) {
  Steps steps;
  for (int i = 0; i < 50; ++i) {
    for (const WorkerSlot slot : {kA, kB}) steps.Observe(slot, 1e-3);
  }
  steps.Observe(kB, 100e-3);
  EXPECT_NEAR(steps.Ratio(kB, kA), 1, 0.1);
}

TEST(WorkerCostsTest, ASlowWorkerIsFoundOut) {
  for (const double times : {0.25, 4.0}) {
    Steps steps;
    for (int i = 0; i < 12; ++i) {
      for (const WorkerSlot slot : {kA, kB, kC}) steps.Observe(slot, 1e-3);
      steps.Observe(kD, times * 1e-3);
    }
    const double found = steps.Ratio(kD, kA);
    EXPECT_GT(std::max(found, 1 / found), 1.8) << found;
    EXPECT_LT(std::max(found, 1 / found), 4.4) << found;
    for (int i = 0; i < 100; ++i) {
      for (const WorkerSlot slot : {kA, kB, kC}) steps.Observe(slot, 1e-3);
      steps.Observe(kD, times * 1e-3);
    }
    EXPECT_NEAR(std::log(steps.Ratio(kD, kA)) / std::log(times), 1, 0.2);
  }
}

TEST(WorkerCostsTest, AWorkerThatBecomesSlowIsFollowed) {
  Steps steps;
  for (int i = 0; i < 100; ++i) {
    for (const WorkerSlot slot : {kA, kB, kC}) steps.Observe(slot, 1e-3);
  }
  for (int i = 0; i < 20; ++i) {
    for (const WorkerSlot slot : {kA, kB}) steps.Observe(slot, 1e-3);
    steps.Observe(kC, 4e-3);
  }
  EXPECT_GT(steps.Ratio(kC, kA), 1.5);
}

TEST(WorkerCostsTest, WhoGetsNothingIsLikeTheFleetAgain) {
  Steps steps;
  for (int i = 0; i < 100; ++i) {
    steps.Observe(kA, 1e-3);
    steps.Observe(kB, 4e-3);
  }
  EXPECT_GT(steps.Ratio(kB, kA), 3);
  for (int i = 0; i < 2000; ++i) steps.Observe(kA, 1e-3);
  EXPECT_NEAR(steps.Ratio(kB, kA), 1, 0.05);
}

// Whoever is asked alone finds the machine idle, and is no faster than those that share it.
TEST(WorkerCostsTest, APaceThatAllShareSaysNothingOfOne) {
  Steps steps;
  for (int i = 0; i < 50; ++i) {
    for (const WorkerSlot slot : {kA, kB, kC, kD}) steps.Observe(slot, 4e-3);
  }
  for (int i = 0; i < 40; ++i) steps.Observe(kD, 1e-3);
  EXPECT_NEAR(steps.Ratio(kD, kA), 1, 0.2);
  EXPECT_LT(steps.Seconds(kA), 2e-3) << "all are expected to be quick now";
}

TEST(WorkerCostsTest, WorkersThatAreAlikeAreEqualWithinTheirNoise) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  Steps steps;
  uint64_t draw = 0;
  for (int i = 0; i < 300; ++i) {
    for (const WorkerSlot slot : {kA, kB, kC, kD}) {
      // Half of the mean, or up to twice as long.
      steps.Observe(slot, 1e-3 * std::exp2(2 * UniformAt(seed, draw++) - 1));
    }
    for (const WorkerSlot slot : {kB, kC, kD}) ASSERT_NEAR(steps.Ratio(slot, kA), 1, 0.4) << i;
  }
}

// Sixteen answers of one batch say no more than one.
TEST(WorkerCostsTest, ABatchIsOneObservation) {
  Steps steps;
  const auto burst = [&](WorkerSlot slot, double seconds) {
    for (int i = 0; i < 16; ++i) steps.Observe(slot, seconds, 15);
  };
  for (int round = 0; round < 3; ++round) {
    for (const WorkerSlot slot : {kA, kB}) burst(slot, 1e-3);
  }
  burst(kA, 1e-3);
  burst(kB, 1.7e-3);
  EXPECT_NEAR(steps.Ratio(kB, kA), 1, 0.1);
  // Time and again it says something.
  for (int round = 0; round < 30; ++round) {
    burst(kA, 1e-3);
    burst(kB, 1.7e-3);
  }
  EXPECT_GT(steps.Ratio(kB, kA), 1.3);
}

TEST(WorkerCostsTest, MeasurementsAreComparedWithMeasurements) {
  Steps steps;
  steps.Introduce(kA, 0.1e-3);
  steps.Introduce(kB, 0.1e-3);
  steps.Introduce(kC, 0.4e-3);
  EXPECT_EQ(steps.Ratio(kB, kA), 1);
  EXPECT_GT(steps.Ratio(kC, kA), 1.1);
  // Ten times what a bare step takes.
  for (int i = 0; i < 30; ++i) steps.Observe(kA, 1e-3);
  EXPECT_NEAR(steps.Ratio(kB, kA), 1, 0.1);
  EXPECT_GT(steps.Ratio(kC, kA), 1.1);
  EXPECT_GT(steps.Seconds(kA), 0.7e-3);
  EXPECT_LT(steps.Seconds(kA), 1.5e-3);
}

TEST(WorkerCostsTest, AStrangerIsTheFleetsMeanAndAnEntryComesBack) {
  Steps steps;
  for (int i = 0; i < 50; ++i) {
    for (const WorkerSlot slot : {kA, kB}) steps.Observe(slot, 1e-3);
    steps.Observe(kC, 4e-3);
  }
  EXPECT_FALSE(steps.costs().Knows(kD));
  EXPECT_GT(steps.Seconds(kD), steps.Seconds(kA));
  EXPECT_LT(steps.Seconds(kD), steps.Seconds(kC));
  const auto entry = steps.costs().Get(kC);
  steps.costs().Put(kC, std::nullopt);
  EXPECT_FALSE(steps.costs().Knows(kC));
  steps.costs().Put(kD, entry);
  EXPECT_NEAR(steps.Ratio(kD, kA), 4, 1);
}

TEST(WorkerCostsTest, AbsurdTimesLeaveItInOrder) {
  Steps steps;
  for (const double seconds :
       {0.0, -1.0, std::nan(""), 1e300, 1e-300, std::numeric_limits<double>::infinity()}) {
    steps.Observe(kA, seconds);
    EXPECT_TRUE(std::isfinite(steps.Seconds(kA)));
    EXPECT_GE(steps.Seconds(kA), 0);
  }
  // Nor do others suffer by them.
  steps.Introduce(kB, 1e-300);
  for (int i = 0; i < 50; ++i) {
    for (const double seconds : {1e300, 1e6, 1e-9, 1e-300}) steps.Observe(kB, seconds);
    steps.Observe(kA, 1e-3);
    EXPECT_TRUE(std::isfinite(steps.Seconds(kA))) << i;
    EXPECT_TRUE(std::isfinite(steps.Seconds(kB))) << i;
  }
}

}  // namespace
}  // namespace baton::router::placement
