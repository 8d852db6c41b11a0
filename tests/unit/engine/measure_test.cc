#include "engine/measure.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/fuzz/tiny_engine.h"

namespace baton::engine {
namespace {

// So long from one reading to the next.
class SteppingClock final : public Clock {
 public:
  explicit SteppingClock(absl::Duration step) : step_(step) {}
  absl::Time Now() const override { return absl::UnixEpoch() + step_ * static_cast<int64_t>(++readings_); }
  int64_t readings() const { return readings_; }

 private:
  const absl::Duration step_;
  mutable std::atomic<int64_t> readings_{0};
};

TEST(MeasureTest, LeavesTheEngineAsItWas) {
  for (const int64_t blocks : {1, 2, 9, 40, 400}) {
    const auto engine = fuzz::MakeTinyEngine(blocks);
    const forecast::StepCost cost = MeasureStepCost(*engine, {}, MonotonicClock());
    EXPECT_TRUE(forecast::Plausible(cost)) << blocks;
    EXPECT_EQ(engine->pool().counts().free, blocks);
    EXPECT_TRUE(engine->pool().Published().empty());
    engine->pool().CheckConservation();
  }
}

// Steps that take the same, whatever is in them.
TEST(MeasureTest, FindsWhatTheClockSays) {
  const auto engine = fuzz::MakeTinyEngine(100);
  const SteppingClock clock(absl::Microseconds(200));
  const forecast::StepCost cost = MeasureStepCost(*engine, {.budget = absl::Hours(1)}, clock);
  forecast::StepForecast forecast(cost);
  forecast::StepLoad chunk;
  chunk.AddRows(0, 256);
  EXPECT_NEAR(forecast.Seconds({.running = 4, .context = 400}), 200e-6, 100e-6);
  EXPECT_NEAR(forecast.Seconds(chunk), 200e-6, 100e-6);
}

// Other processes start at the same time: six steps of seven take three times as long as they need.
TEST(MeasureTest, AShortStepIsRepeatedUntilItIsUndisturbed) {
  class BusyClock final : public Clock {
   public:
    absl::Time Now() const override {
      now_ += absl::Microseconds(++readings_ % 7 == 0 ? 100 : 300);
      return now_;
    }

   private:
    mutable int64_t readings_ = 0;
    mutable absl::Time now_ = absl::UnixEpoch();
  };
  const auto engine = fuzz::MakeTinyEngine(100);
  const forecast::StepForecast forecast(MeasureStepCost(*engine, {.budget = absl::Hours(1)}, BusyClock()));
  for (const int64_t running : {1, 4, 8}) {
    EXPECT_NEAR(forecast.Seconds({.running = running, .context = 100 * running}), 100e-6, 50e-6) << running;
  }
}

// A model of which a single step takes minutes: two of them, and no more.
TEST(MeasureTest, IsBoundedOnALargeModel) {
  const auto engine = fuzz::MakeTinyEngine(400);
  const SteppingClock clock(absl::Minutes(1));
  const forecast::StepCost cost = MeasureStepCost(*engine, {}, clock);
  EXPECT_LE(clock.readings(), 8) << "two a step, and one to see that the budget is gone";
  EXPECT_GT(forecast::StepForecast(cost).Seconds({.running = 1, .context = 1}), 1);
}

}  // namespace
}  // namespace baton::engine
