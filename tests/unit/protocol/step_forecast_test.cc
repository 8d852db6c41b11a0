#include "protocol/forecast/step_forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "tests/seed.h"

namespace baton::forecast {
namespace {

// A model of 0.4 B on a core.
constexpr StepCost kCore = {.base = 60e-3, .sequence = 4e-3, .context = 2e-6, .token = 4e-3, .pair = 0.4e-6};

double Takes(const StepCost& cost, const StepLoad& load) {
  return cost.base + cost.sequence * static_cast<double>(load.running) +
         cost.context * static_cast<double>(load.context) + cost.token * static_cast<double>(load.rows) +
         cost.pair * load.pairs;
}

StepLoad Load(int64_t running, int64_t context, int64_t first = 0, int64_t rows = 0) {
  StepLoad load{.running = running, .context = context};
  if (rows > 0) load.AddRows(first, rows);
  return load;
}

TEST(StepForecastTest, LearnsFromTheStepsThatThereAre) {
  StepForecast forecast{StepCost()};
  for (int i = 0; i < 40; ++i) {
    for (const StepLoad& load : {Load(1 + i % 4, 200 * (1 + i % 7)), Load(4, 2000, 64 * i, 16)}) {
      forecast.Observe(load, Takes(kCore, load));
    }
  }
  for (const StepLoad& load : {Load(2, 800), Load(4, 2000, 1500, 16), Load(3, 1000, 500, 48)}) {
    EXPECT_NEAR(forecast.Seconds(load) / Takes(kCore, load), 1, 0.25);
  }
}

TEST(StepForecastTest, AFewStepsMeasuredAtOnceAreEnough) {
  StepForecast forecast{StepCost()};
  std::vector<StepForecast::Measured> measured;
  for (const StepLoad& load : {Load(0, 0, 0, 16), Load(1, 1), Load(0, 0, 0, 64), Load(8, 8),
                               Load(0, 0, 2048, 16), Load(8, 8 * 2049)}) {
    measured.push_back({load, Takes(kCore, load)});
  }
  forecast.Fit(measured);
  for (const StepLoad& load : {Load(4, 4 * 500), Load(0, 0, 0, 512), Load(4, 2000, 1500, 16)}) {
    EXPECT_NEAR(forecast.Seconds(load) / Takes(kCore, load), 1, 0.5);
  }
}

// One core of a CPU and 0.39 B parameters: the proportions are far from those of the prior, and a large model
// leaves time for no more than three steps.
TEST(StepForecastTest, ThreeStepsOfACpuAreEnough) {
  StepForecast forecast{StepCost()};
  forecast.Fit(std::vector<StepForecast::Measured>{
      {Load(0, 0, 0, 16), 0.1182}, {Load(1, 1), 0.0308}, {Load(0, 0, 0, 64), 0.4368}});
  EXPECT_NEAR(forecast.Seconds(Load(0, 0, 0, 500)), 3.6, 1.2) << "as measured on the same core";
  EXPECT_NEAR(forecast.Seconds(Load(0, 0, 0, 64)), 0.4368, 0.05);
  EXPECT_NEAR(forecast.Seconds(Load(1, 1)), 0.0308, 0.003);
}

TEST(StepForecastTest, RowsWithinTakeNoLongerThanThat) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  for (uint64_t i = 0; i < 500; ++i) {
    const double seconds = 0.5 * UniformAt(seed, 4 * i), token = 5e-3 * UniformAt(seed, 4 * i + 1);
    const double pair = 1e-6 * UniformAt(seed, 4 * i + 2);
    const auto first = static_cast<int64_t>(30'000 * UniformAt(seed, 4 * i + 3));
    const int64_t rows = RowsWithin(seconds, token, pair, first);
    const auto took = [&](int64_t count) {
      StepLoad load;
      load.AddRows(first, count);
      return token * static_cast<double>(load.rows) + pair * load.pairs;
    };
    ASSERT_LE(took(rows), seconds * (1 + 1e-9));
    ASSERT_GE(took(rows + 2), seconds);
  }
  EXPECT_EQ(RowsWithin(0, 1e-3, 0, 0), 0);
  EXPECT_EQ(RowsWithin(-1, 1e-3, 1e-6, 100), 0);
  EXPECT_GT(RowsWithin(1, 0, 0, 0), 1'000'000) << "rows that take no time";
}

TEST(AnswersInTimeTest, TheMostThatMeetTheTarget) {
  const auto steps = [](double base, double each) {
    return [=](int64_t answers) { return base + each * static_cast<double>(answers); };
  };
  // 10 ms and 1 ms each: 37 take 47 ms, within 95% of the target.
  EXPECT_EQ(AnswersInTime(0.05, 256, steps(0.01, 1e-3)), 37);
  EXPECT_EQ(AnswersInTime(0.05, 20, steps(0.01, 1e-3)), 20);
  EXPECT_EQ(AnswersInTime(0.05, 256, steps(0.04, 5e-3)), 1);
  EXPECT_EQ(AnswersInTime(0.05, 256, steps(1e-9, 0)), 256) << "steps take no time";
}

TEST(AnswersInTimeTest, WhereOneMissesTheTargetAStepTakesAtMostTwiceAsLong) {
  const auto step = [](int64_t answers) { return 0.09 + 0.0101 * static_cast<double>(answers); };
  EXPECT_EQ(AnswersInTime(0.05, 256, step), 10);
  EXPECT_EQ(AnswersInTime(0.05, 1, step), 1);
}

TEST(StepForecastTest, AnothersWordIsLookedAt) {
  EXPECT_TRUE(Plausible(kCore));
  EXPECT_FALSE(Plausible({.base = 0, .sequence = 0, .context = 0, .token = 0, .pair = 0}));
  for (const double bad : {-1e-9, 1e9, std::nan(""), std::numeric_limits<double>::infinity()}) {
    StepCost cost = kCore;
    cost.token = bad;
    EXPECT_FALSE(Plausible(cost)) << bad;
  }
}

TEST(StepForecastTest, WhatAStepWouldTakeWithoutItsDrafts) {
  StepForecast forecast(kCore);
  StepLoad load{.running = 2, .context = 500};
  EXPECT_EQ(forecast.PlainShare(load), 1);
  const double plain = forecast.Seconds(load);
  load.AddDrafted(300, 4);
  EXPECT_NEAR(forecast.PlainShare(load) * forecast.Seconds(load), plain, 1e-12);
  EXPECT_LT(forecast.PlainShare(load), 1);
  const StepForecast nothing({.base = 0, .sequence = 0, .context = 0, .token = 0, .pair = 0});
  EXPECT_EQ(nothing.PlainShare(load), 1);
}

TEST(StepForecastTest, ADraftedRowCostsWhatASequencesRowDoes) {
  StepForecast forecast(kCore);
  StepLoad load{.running = 2, .context = 500};
  const double plain = forecast.Seconds(load);
  load.AddDrafted(300, 4);
  EXPECT_NEAR(forecast.Seconds(load) - plain, 4 * kCore.sequence + kCore.pair * 4 * 302, 1e-12);
  EXPECT_EQ(forecast.PromptSeconds(load), 0) << "no prompt is charged for it";
}

}  // namespace
}  // namespace baton::forecast
