// Placement beside running answers and queues, on workers like a 0.4 B model on a core each.
#include <gtest/gtest.h>

#include <vector>

#include "router/placement/policy.h"

namespace baton::router::placement {
namespace {

constexpr forecast::StepCost kCore = {
    .base = 60e-3, .sequence = 4e-3, .context = 2e-6, .token = 4e-3, .pair = 0.4e-6};
constexpr int64_t kPrompt = 2048;
constexpr WorkerSlot kDecode{0}, kPrefill{1};

class OneAndOne {
 public:
  explicit OneAndOne(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {
    decode_[0].slot = kDecode;
    prefill_[0].slot = kPrefill;
  }
  Policy& policy() { return *policy_; }
  WorkerState& decode() { return decode_[0]; }

  void Introduce() {
    policy_->Introduce(kDecode, kCore);
    policy_->Introduce(kPrefill, kCore);
  }
  // A prompt that waits for the prefill worker, and for a place among the answers.
  void Queue(int64_t tokens) {
    booked_.push_back({.due = now_ + absl::Seconds(2),
                       .tokens = tokens,
                       .since = now_,
                       .request = static_cast<uint64_t>(booked_.size())});
    prefill_[0].booked = booked_;
    prefill_[0].busy_since = now_;
    ++prefill_[0].waiting;
    prefill_[0].queued_tokens += tokens;
    ++decode_[0].running;
  }
  Selection Select(int64_t tokens = kPrompt) {
    return policy_->Select({.prompt_tokens = tokens, .max_tokens = 100, .arrival = now_},
                           {.decode = decode_, .prefill = prefill_, .now = now_});
  }
  Selection ChooseAlone(int64_t tokens = kPrompt) {
    return policy_->Select({.prompt_tokens = tokens, .max_tokens = 100, .arrival = now_},
                           {.decode = decode_, .now = now_});
  }

 private:
  const absl::Time now_ = absl::UnixEpoch() + absl::Seconds(1000);
  std::unique_ptr<Policy> policy_;
  std::vector<WorkerState> decode_{1}, prefill_{1};
  std::vector<Booked> booked_;
};

OneAndOne Fleet(double slo_tpot = forecast::kDefaultSloTpot) {
  return OneAndOne(
      *MakePolicy("prefix_affinity", 1, forecast::QueueTargets::For(forecast::kDefaultSloTtft), slo_tpot));
}

TEST(InterferenceTest, LongPromptsGoToThePoolWhileAnswersRun) {
  for (const bool introduced : {true, false}) {
    OneAndOne fleet = Fleet();
    if (introduced) fleet.Introduce();
    fleet.decode().running = 4;
    fleet.decode().context_tokens = 4 * 300;
    for (int queued = 0; queued < 12; ++queued) {
      EXPECT_FALSE(fleet.Select().prefill.empty()) << queued << " wait there already";
      fleet.Queue(kPrompt);
    }
  }
}

TEST(InterferenceTest, AShortRestStaysWhereItsPrefixIs) {
  OneAndOne fleet = Fleet();
  fleet.Introduce();
  fleet.decode().running = 4;
  fleet.decode().context_tokens = 4 * 300;
  fleet.decode().matched_blocks = fleet.decode().confirmed_blocks = 126;
  const Selection local = fleet.Select();
  EXPECT_EQ(local.reason, Reason::kLocal);
  EXPECT_EQ(local.uncached_tokens, kPrompt - 126 * 16);
}

// In a burst of equal prompts the first one's blocks are only expected there: the decode worker would compute
// them once more, beside its answers, and later prompts would not find them on the prefill workers.
TEST(InterferenceTest, APrefixThatIsOnlyExpectedThereIsNotReused) {
  for (const int64_t confirmed : {0, 20}) {
    OneAndOne fleet = Fleet();
    fleet.Introduce();
    fleet.decode().running = 4;
    fleet.decode().context_tokens = 4 * 300;
    fleet.decode().matched_blocks = 126;
    fleet.decode().confirmed_blocks = confirmed;
    EXPECT_FALSE(fleet.Select().prefill.empty()) << confirmed << " of 126 blocks are there";
    EXPECT_EQ(fleet.ChooseAlone().uncached_tokens, kPrompt - confirmed * 16);
  }
}

TEST(InterferenceTest, WhereNoAnswerRunsAQueueIsPassed) {
  OneAndOne fleet = Fleet();
  fleet.Introduce();
  for (int queued = 0; queued < 4; ++queued) fleet.Queue(kPrompt);
  fleet.decode().running = 0;
  EXPECT_EQ(fleet.Select().reason, Reason::kLocal);
}

// Steps of running answers are cut to the SLO: a prompt beside them takes a step of theirs for each piece.
TEST(InterferenceTest, APromptAmongAnswersIsPredictedByThePiecesThatTheSloLeaves) {
  const auto predicted = [](double slo_tpot) {
    OneAndOne fleet = Fleet(slo_tpot);
    fleet.Introduce();
    fleet.decode().running = 4;
    fleet.decode().context_tokens = 4 * 300;
    return fleet.ChooseAlone().predicted;
  };
  const double step = 60e-3 + 4 * 4e-3 + 1200 * 2e-6;
  const double alone = 60e-3 + kPrompt * 4e-3 + kPrompt * kPrompt / 2 * 0.4e-6;
  // No room at all: a block to a step.
  EXPECT_NEAR(predicted(0.05).ttft(), alone + kPrompt / 16 * step, 0.05 * alone);
  // Room for about a hundred rows.
  EXPECT_NEAR(predicted(0.5).ttft(), alone + kPrompt / 95 * step, 0.1 * alone);
  EXPECT_NEAR(predicted(0.05).interference, 4 * alone, 0.2) << "seconds times answers";
  EXPECT_NEAR(predicted(0.5).interference, 4 * alone * (step / 0.5) * (step / 0.5), 0.02);
}

// The same answers, the same queue, and two targets.
TEST(InterferenceTest, AnswersThatAreFarFromTheirTargetLetAPromptPassTheQueue) {
  for (const double slo_tpot : {0.08, 2.0}) {
    OneAndOne fleet = Fleet(slo_tpot);
    fleet.Introduce();
    for (int queued = 0; queued < 4; ++queued) fleet.Queue(kPrompt);
    EXPECT_EQ(fleet.Select().reason == Reason::kLocal, slo_tpot == 2.0) << slo_tpot;
  }
}

TEST(PredictionTest, AWorkerIsKnownFromItsFirstWord) {
  OneAndOne fleet = Fleet();
  fleet.Introduce();
  fleet.decode().running = 8;
  const double alone = 60e-3 + kPrompt * 4e-3 + kPrompt * kPrompt / 2 * 0.4e-6;
  EXPECT_NEAR(fleet.Select().predicted.ttft(), alone, 0.01);
  fleet.Queue(kPrompt);
  fleet.Queue(kPrompt);
  EXPECT_NEAR(fleet.Select().predicted.ttft(), 3 * alone, 0.01) << "two wait before it";
  // Observations of a worker count for more than the costs that it told.
  Outcome outcome;
  outcome.prefill = kPrefill;
  outcome.uncached_tokens = kPrompt;
  outcome.compute_seconds = 2 * alone;
  fleet.policy().Observe(outcome);
  fleet.Introduce();
  EXPECT_NEAR(fleet.Select().predicted.prefill, 2 * alone, 0.1);
}

// Prompts that were booked by a router that knew nothing weigh by what it knows now.
TEST(PredictionTest, AQueueIsPredictedAnew) {
  OneAndOne fleet = Fleet();
  fleet.decode().running = 8;
  fleet.Queue(kPrompt);
  fleet.Queue(kPrompt);
  EXPECT_LT(fleet.Select().predicted.ttft(), 1) << "a mid-size accelerator, for all it knows";
  for (const int64_t tokens : {300, 1000, 2000}) {
    Outcome outcome;
    outcome.prefill = kPrefill;
    outcome.uncached_tokens = tokens;
    outcome.compute_seconds = 4e-3 * static_cast<double>(tokens);
    fleet.policy().Observe(outcome);
  }
  EXPECT_NEAR(fleet.Select().predicted.ttft(), 3 * 4e-3 * kPrompt, 0.5 * 4e-3 * kPrompt);
}

}  // namespace
}  // namespace baton::router::placement
