// Losses of running answers by a prompt that is prefilled beside them on the decode worker: in virtual time,
// with steps that take what a cost says.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "tests/integration/relay/relay.h"

namespace baton::testing {
namespace {

// A step takes what `cost` says of its load, from when it is launched.
class CostClock final : public Clock {
 public:
  explicit CostClock(const forecast::StepCost& cost) : cost_(cost) {}
  void Watch(const decode_service::Scheduler* scheduler) { scheduler_ = scheduler; }

  absl::Time Now() const override {
    if (scheduler_ == nullptr || scheduler_->steps_launched() == counted_) return now_;
    BATON_CHECK(scheduler_->steps_launched() == counted_ + 1);
    counted_ = scheduler_->steps_launched();
    const forecast::StepLoad& load = scheduler_->last_load();
    now_ += absl::Seconds(cost_.base + cost_.sequence * static_cast<double>(load.running) +
                          cost_.context * static_cast<double>(load.context) +
                          cost_.token * static_cast<double>(load.rows) + cost_.pair * load.pairs);
    return now_;
  }

 private:
  const forecast::StepCost cost_;
  const decode_service::Scheduler* scheduler_ = nullptr;
  mutable int64_t counted_ = 0;
  mutable absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

constexpr int64_t kStreams = 4;
constexpr double kSlo = 0.05;

std::vector<TokenId> Prompt(int64_t size, int32_t first) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < size; ++i) tokens.emplace_back(static_cast<int32_t>((first + 7 * i) % 400 + 5));
  return tokens;
}

struct Seen {
  std::vector<double> steps;  // seconds of each step with rows of the prompt
  double prefill = 0;         // as the worker tells it
  double queue = 0;
};

// Four answers run; then a prompt comes that this worker has to prefill itself.
Seen PrefillAmong(int64_t streams, int64_t prompt, const forecast::StepCost& cost,
                  const forecast::StepCost& measured) {
  CostClock clock(cost);
  std::vector<Answer> answers(streams + 1);
  Relay relay({.chunk = 256,
               .budget = 512,
               .logits_digests = false,
               .clock = &clock,
               .slo_tpot = kSlo,
               .step_cost = measured});
  clock.Watch(&relay.scheduler());
  for (int64_t i = 0; i < streams; ++i) {
    relay.Ask(Prompt(10, static_cast<int32_t>(31 * i)), {}, 400, answers[i], {}, "tenant");
  }
  for (int turn = 0; turn < 8; ++turn) relay.Turn();
  Answer& late = answers[streams];
  relay.Ask(Prompt(prompt, 3), {}, 2, late, {}, "tenant");
  Seen seen;
  while (late.tokens.empty()) {
    const absl::Time before = clock.Now();
    relay.Turn();
    seen.steps.push_back(absl::ToDoubleSeconds(clock.Now() - before));
    EXPECT_LT(seen.steps.size(), 1000u);
  }
  while (!late.finished.has_value()) relay.Turn();
  seen.prefill = late.finished->timing().prefill_seconds();
  seen.queue = late.finished->timing().prefill_queue_seconds();
  return seen;
}

double Longest(const std::vector<double>& steps, size_t from) {
  return *std::max_element(steps.begin() + static_cast<int64_t>(from), steps.end());
}

constexpr forecast::StepCost kCost = {.base = 0, .sequence = 5e-3, .context = 0, .token = 0.5e-3, .pair = 0};

TEST(InterferenceTest, AStepWithAPromptInItKeepsToTheSlo) {
  const Seen seen = PrefillAmong(kStreams, 800, kCost, kCost);
  EXPECT_LE(Longest(seen.steps, 0), 1.05 * kSlo);
  EXPECT_LE(seen.steps.size(), 800u / 48 + 1) << "and uses what the SLO leaves";
}

// Its first steps teach a worker that knew nothing of itself.
TEST(InterferenceTest, AWorkerLearnsWhatItsStepsTake) {
  const Seen seen = PrefillAmong(kStreams, 800, kCost, forecast::StepCost());
  EXPECT_LE(Longest(seen.steps, 3), 1.3 * kSlo);
  EXPECT_LE(seen.steps.size(), 800u / 16);
}

TEST(InterferenceTest, TheBoundHoldsWhereAttentionGrowsWithTheContext) {
  forecast::StepCost cost = kCost;
  cost.token = 0.2e-3;
  cost.pair = 1.5e-6;
  const Seen seen = PrefillAmong(kStreams, 960, cost, cost);
  EXPECT_LE(Longest(seen.steps, 0), 1.05 * kSlo);
  const Seen stranger = PrefillAmong(kStreams, 960, cost, forecast::StepCost());
  EXPECT_LE(Longest(stranger.steps, 3), 1.3 * kSlo);
}

TEST(InterferenceTest, ABlockGoesIntoAStepThatHasNoRoomForIt) {
  forecast::StepCost cost = kCost;
  cost.token = 10e-3;
  const Seen seen = PrefillAmong(kStreams, 160, cost, cost);
  EXPECT_EQ(seen.steps.size(), 10u) << "prompts get on";
  EXPECT_LE(Longest(seen.steps, 0), kStreams * cost.sequence + 16 * cost.token + 1e-2);
}

TEST(InterferenceTest, WhereNoAnswerRunsStepsAreFull) {
  const Seen seen = PrefillAmong(0, 800, kCost, kCost);
  EXPECT_EQ(seen.steps.size(), 4u);
  EXPECT_NEAR(seen.prefill, 0.4, 0.02);
}

// A prompt's own time is told apart from its time of waiting, which is not its own.
TEST(InterferenceTest, APromptTellsItsOwnShare) {
  const Seen seen = PrefillAmong(kStreams, 800, kCost, kCost);
  EXPECT_NEAR(seen.prefill, 0.4, 0.15);
  EXPECT_GT(seen.queue, 0.2) << "the steps of four answers";
}

}  // namespace
}  // namespace baton::testing
