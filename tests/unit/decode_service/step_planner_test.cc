#include "decode_service/step_planner.h"

#include <gtest/gtest.h>

namespace baton::decode_service {
namespace {

using State = PlannerSequence::State;

// A row takes a millisecond, and a running sequence another.
constexpr forecast::StepCost kCost = {.base = 0, .sequence = 1e-3, .context = 0, .token = 1e-3, .pair = 0};

PlannerSequence Running(uint64_t id, int64_t size) {
  return {.id = SequenceId(id),
          .state = State::kRunning,
          .size = size,
          .computed = size - 1,
          .max_tokens = 100,
          .preemptible = true};
}
PlannerSequence Prefilling(uint64_t id, int64_t size, int64_t computed) {
  return {.id = SequenceId(id),
          .state = State::kPrefilling,
          .size = size,
          .computed = computed,
          .max_tokens = size + 100,
          .preemptible = true};
}

class StepPlannerTest : public testing::Test {
 protected:
  StepPlan Plan(const std::vector<PlannerSequence>& sequences, const StepLimits& limits = {},
                bool answers_wait = false) {
    return StepPlanner(limits).Plan(sequences, answers_wait, forecast_);
  }
  forecast::StepForecast forecast_{kCost};
};

TEST_F(StepPlannerTest, RunningSequencesGoOnByOneToken) {
  PlannerSequence waiting = Running(2, 9);
  waiting.state = State::kWaiting;
  PlannerSequence preempted = Running(3, 9);
  preempted.state = State::kPreempted;
  const StepPlan plan = Plan({Running(1, 20), waiting, preempted, Running(4, 30)});
  ASSERT_EQ(plan.sequences.size(), 2u);
  EXPECT_EQ(plan.sequences[0].id, SequenceId(1));
  EXPECT_EQ(plan.sequences[0].first, 19);
  EXPECT_EQ(plan.sequences[0].rows, 1);
  EXPECT_EQ(plan.sequences[0].logit_rows, 1);
  EXPECT_FALSE(plan.sequences[0].future_draw.has_value());
  EXPECT_EQ(plan.sequences[1].first, 29);
  EXPECT_FALSE(plan.has_prompts());
  EXPECT_EQ(plan.load.running, 2);
  EXPECT_EQ(plan.load.context, 50);
}

TEST_F(StepPlannerTest, ARowMayBeThatOfAFutureTokenUnlessThatIsTheLast) {
  PlannerSequence next = Running(1, 20), last = Running(2, 99);
  next.future_draw = 0;
  last.future_draw = 1;
  ASSERT_EQ(last.max_tokens, 100);
  const StepPlan plan = Plan({next, last});
  ASSERT_EQ(plan.sequences.size(), 1u);
  EXPECT_EQ(plan.sequences[0].id, SequenceId(1));
  EXPECT_EQ(plan.sequences[0].first, 20);
  EXPECT_EQ(plan.sequences[0].future_draw, 0);
  last.size = 98;
  EXPECT_EQ(Plan({last}).sequences.size(), 1u);
}

TEST_F(StepPlannerTest, OfAPromptThatIsToldLogitsAreComputedInBoundedSteps) {
  const StepLimits limits = {.chunk_tokens = 64, .token_budget = 128, .slo_tpot = 10, .logit_rows = 32};
  const auto planned = [&](int64_t computed, int64_t from) {
    PlannerSequence prompt = Prefilling(1, 100, computed);
    prompt.prompt_logits_from = from;
    const StepPlan plan = Plan({prompt}, limits);
    EXPECT_EQ(plan.sequences.size(), 1u);
    return std::pair(plan.sequences[0].rows, plan.sequences[0].logit_rows);
  };
  EXPECT_EQ(planned(0, 0), std::pair(int64_t{32}, int64_t{32}));
  EXPECT_EQ(planned(32, 0), std::pair(int64_t{32}, int64_t{32}));
  EXPECT_EQ(planned(0, 20), std::pair(int64_t{32}, int64_t{12})) << "some is told already";
  EXPECT_EQ(planned(0, 50), std::pair(int64_t{32}, int64_t{0}));
  EXPECT_EQ(planned(96, 0), std::pair(int64_t{4}, int64_t{4}));
  EXPECT_EQ(planned(96, 99), std::pair(int64_t{4}, int64_t{1}));
}

TEST_F(StepPlannerTest, LogitsOfAllPromptsTogetherAreBounded) {
  std::vector<PlannerSequence> prompts;
  for (uint64_t id = 1; id <= 4; ++id) {
    prompts.push_back(Prefilling(id, 40, 0));
    if (id < 4) prompts.back().prompt_logits_from = 0;
  }
  const StepPlan plan =
      Plan(prompts, {.chunk_tokens = 64, .token_budget = 512, .slo_tpot = 10, .logit_rows = 64});
  int64_t logit_rows = 0;
  for (const PlannedRows& rows : plan.sequences) logit_rows += rows.logit_rows;
  EXPECT_EQ(logit_rows, 64 + 1);
  ASSERT_EQ(plan.sequences.size(), 3u) << "a prompt that needs none goes on";
  EXPECT_EQ(plan.sequences[1].rows, 24);
  EXPECT_EQ(plan.sequences[2].id, SequenceId(4));
}

TEST_F(StepPlannerTest, PromptsTakeWhatRunningSequencesLeave) {
  const StepPlan plan =
      Plan({Prefilling(1, 100, 32), Running(2, 20), Prefilling(3, 40, 0), Prefilling(4, 9, 0)},
           {.chunk_tokens = 64, .token_budget = 97, .slo_tpot = 10});
  ASSERT_EQ(plan.sequences.size(), 3u) << "no room is left for the last prompt";
  EXPECT_EQ(plan.sequences[0].id, SequenceId(2));
  EXPECT_FALSE(plan.sequences[0].prompt);
  EXPECT_EQ(plan.sequences[1].id, SequenceId(1));
  EXPECT_TRUE(plan.sequences[1].prompt);
  EXPECT_EQ(plan.sequences[1].first, 32);
  EXPECT_EQ(plan.sequences[1].rows, 64);
  EXPECT_EQ(plan.sequences[1].logit_rows, 0) << "4 tokens are left";
  EXPECT_EQ(plan.sequences[2].rows, 32) << "what is left of the budget";
  EXPECT_TRUE(plan.has_prompts());
  EXPECT_EQ(plan.load.rows, 96);
}

TEST_F(StepPlannerTest, TheLastChunkOfAPromptHasLogits) {
  EXPECT_EQ(Plan({Prefilling(1, 70, 64)}).sequences.at(0).logit_rows, 1);
  EXPECT_EQ(Plan({Prefilling(1, 70, 0)}, {.chunk_tokens = 64}).sequences.at(0).logit_rows, 0);
}

TEST_F(StepPlannerTest, ABlockOfAPromptFitsIntoAnyStep) {
  std::vector<PlannerSequence> sequences;
  for (uint64_t id = 0; id < 40; ++id) sequences.push_back(Running(id, 20));
  sequences.push_back(Prefilling(50, 100, 0));
  const StepPlan plan = Plan(sequences, {.chunk_tokens = 64, .token_budget = 32, .slo_tpot = 1e-3});
  ASSERT_EQ(plan.sequences.size(), 41u) << "running sequences never wait for the budget";
  EXPECT_EQ(plan.sequences.back().rows, kBlockTokens);
}

TEST_F(StepPlannerTest, PromptsKeepTheStepWithinTheSloWhileAnswersWait) {
  const StepLimits limits = {.chunk_tokens = 256, .token_budget = 512, .slo_tpot = 0.0505};
  const std::vector<PlannerSequence> prompts = {Prefilling(2, 30, 0), Prefilling(3, 300, 0)};
  EXPECT_EQ(Plan(prompts, limits).load.rows, 30 + 256) << "no answer waits";
  EXPECT_EQ(Plan(prompts, limits, true).load.rows, 30 + 16) << "20 ms are left for a block of 16 ms";
  std::vector<PlannerSequence> beside = {Running(1, 20)};
  beside.insert(beside.end(), prompts.begin(), prompts.end());
  EXPECT_EQ(Plan(beside, limits).load.rows, 30 + 16);
}

TEST_F(StepPlannerTest, KeepsToTheTpotThatIsToldLater) {
  StepPlanner planner({.chunk_tokens = 256, .token_budget = 512, .slo_tpot = 10});
  const std::vector<PlannerSequence> beside = {Running(1, 20), Prefilling(2, 30, 0), Prefilling(3, 300, 0)};
  EXPECT_EQ(planner.Plan(beside, false, forecast_).load.rows, 30 + 256);
  planner.SetSloTpot(0.0505);
  EXPECT_EQ(planner.slo_tpot(), 0.0505);
  EXPECT_EQ(planner.Plan(beside, false, forecast_).load.rows, 30 + 16);
}

TEST_F(StepPlannerTest, NothingToComputeIsAnEmptyPlan) {
  EXPECT_TRUE(Plan({}).empty());
  PlannerSequence waiting = Running(2, 9);
  waiting.state = State::kWaiting;
  EXPECT_TRUE(Plan({waiting}).empty());
}

TEST_F(StepPlannerTest, BlocksAreNeededForAFutureTokenToo) {
  PlannerSequence sequence = Running(1, 32);
  EXPECT_EQ(StepPlanner::TokensWithBlocks(sequence), 32);
  sequence.future_draw = 3;
  EXPECT_EQ(StepPlanner::TokensWithBlocks(sequence), 33);
}

TEST_F(StepPlannerTest, TheVictimIsTheYoungestThatMayGiveUpItsBlocks) {
  std::vector<PlannerSequence> sequences = {Running(1, 9), Prefilling(2, 9, 0), Running(3, 9)};
  sequences[2].preemptible = false;
  EXPECT_EQ(StepPlanner::Victim(sequences), SequenceId(2));
  for (PlannerSequence& sequence : sequences) sequence.preemptible = false;
  EXPECT_FALSE(StepPlanner::Victim(sequences).has_value());
}

TEST(StepPlannerDeathTest, LimitsHoldABlock) {
  EXPECT_DEATH(StepPlanner({.chunk_tokens = 8}), "");
  EXPECT_DEATH(StepPlanner({.token_budget = 8}), "");
}

TEST_F(StepPlannerTest, DraftedTokensHaveRowsBehindTheSequencesOwn) {
  PlannerSequence drafting = Running(1, 20);
  drafting.drafted = 3;
  const StepPlan plan = Plan({drafting, Running(2, 30), Prefilling(3, 200, 0)},
                             {.chunk_tokens = 64, .token_budget = 40, .slo_tpot = 10});
  ASSERT_EQ(plan.sequences.size(), 3u);
  EXPECT_EQ(plan.sequences[0].first, 19);
  EXPECT_EQ(plan.sequences[0].rows, 4);
  EXPECT_EQ(plan.sequences[0].logit_rows, 4);
  EXPECT_EQ(plan.sequences[0].drafted, 3);
  EXPECT_EQ(plan.sequences[1].rows, 1);
  EXPECT_EQ(plan.load.running, 2);
  EXPECT_EQ(plan.load.drafted, 3);
  EXPECT_TRUE(plan.has_drafts());
  EXPECT_LE(plan.sequences[2].rows, 40 - 2 - 3) << "prompts take what is left of the budget";
}

}  // namespace
}  // namespace baton::decode_service
