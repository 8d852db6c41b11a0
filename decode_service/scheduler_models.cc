// The scheduler's part in drafts of a model (model_drafts.h): for which sequences it drafts how many tokens
// before the next step, and when it computes what it lacks of their prompts. Both cost seconds in which
// no answer goes on, so both are weighed against the tokens that they are expected to give.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "decode_service/drafting/controller.h"
#include "decode_service/scheduler.h"

namespace baton::decode_service {
namespace {

using Phase = Sequence::Phase;

// Tokens that an answer is expected to have still: as many as it has, and these; but for its limit.
constexpr int64_t kExpectedAnswer = 128;
// Sequences that are weighed for a piece of their prompt before one step. Where the first few are not worth
// it, hardly another is.
constexpr int kWeighed = 4;

}  // namespace

Scheduler::ModelPlan Scheduler::PlanModelDrafts(bool in_flight) {
  ModelPlan plan;
  if (!models_.has_value()) return plan;
  const int64_t ahead = in_flight ? 1 : 0;
  forecast::StepLoad load;
  std::vector<std::vector<double>> survival;
  std::vector<drafting::ModelOffer> offers;
  for (const auto& [id, owned] : sequences_) {
    Sequence& sequence = *owned;
    if (sequence.phase != Phase::kRunning || sequence.stands()) continue;
    ++load.running;
    load.context += sequence.size() + ahead;
    ModelDrafter* const drafter = sequence.model_drafter;
    if (drafter == nullptr || !models_->Ready(sequence) || (!in_flight && FutureDraw(id).has_value()))
      continue;
    const int64_t most = std::min({drafting::kMaxDraft, sequence.limit() - sequence.size() - 1 - ahead,
                                   models_->Room(sequence) - ahead});
    if (most <= 0) continue;
    std::vector<double> expected = drafter->Expect(static_cast<size_t>(most));
    // Another drafter that is as sure has its guess for nothing.
    Guess(sequence, most);
    const drafting::Draft& other = sequence.draft;
    if (!other.tokens.empty() && other.kind != models_->kind() &&
        other.survival.front() >= expected.front()) {
      continue;
    }
    survival.push_back(std::move(expected));
    plan.jobs.push_back({.sequence = &sequence});
    const int64_t have = models_->self() || in_flight ? 0 : std::ssize(drafter->drafted());
    offers.push_back({.survival = {},
                      .context = sequence.size() + ahead,
                      .have = have,
                      .behind = models_->Behind(sequence)});
  }
  for (size_t i = 0; i < offers.size(); ++i) offers[i].survival = survival[i];
  drafting::Bounds bounds = DraftBounds(load);
  if (in_flight && load.running > 1) bounds.by_token = false;  // as DraftsWait
  const std::vector<int64_t> granted =
      drafting::GrantDrafts(offers, load, forecast_, models_->forecast(), bounds);
  for (size_t i = 0; i < granted.size(); ++i) plan.jobs[i].tokens = granted[i];
  std::erase_if(plan.jobs, [](const ModelDrafts::Job& job) { return job.tokens <= 0; });
  return plan;
}

void Scheduler::DraftWithModel() {
  // An engine that is at work on a step drafts nothing beside it. DraftsWait found no draft worth the wait,
  // by what each sequence is after that step; one that the step does not have may look better as it is.
  if (in_flight_.has_value() && models_.has_value() && models_->self()) return;
  ModelPlan plan = PlanModelDrafts(false);
  if (plan.empty()) return;
  if (models_->self()) {
    for (ModelDrafts::Job& job : plan.jobs) job.tokens = GrowForDraft(*job.sequence, job.tokens);
  }
  const absl::Time begin = clock_.Now();
  models_->Draft(plan.jobs);
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
  step_drafts_[static_cast<size_t>(models_->kind())].seconds += seconds;
  probe_.drafts().ModelComputed(seconds);
}

void Scheduler::TrimAfterModel(std::span<const PlannerSequence> view) {
  if (!models_.has_value() || !models_->self()) return;
  for (const PlannerSequence& seen : view) {
    if (seen.state != PlannerSequence::State::kRunning || seen.drafted > 0) continue;
    Sequence& sequence = *sequences_.at(seen.id);
    if (sequence.model_drafter == nullptr || seen.future_draw.has_value()) continue;
    sequence.kv().Trim(sequence.capacity());
  }
}

bool Scheduler::PrefillDraftModel() {
  if (!models_.has_value() || models_->self()) return false;
  forecast::StepLoad load;
  bool others = false;  // wait for the piece
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase == Phase::kPrefilling) others = true;
    if (sequence->phase != Phase::kRunning || sequence->stands()) continue;
    others = true;
    ++load.running;
    load.context += sequence->size();
  }
  int weighed = 0;
  for (const auto& [id, owned] : sequences_) {
    if (weighed == kWeighed) break;
    Sequence& sequence = *owned;
    ModelDrafter* const drafter = sequence.model_drafter;
    if (drafter == nullptr || sequence.phase == Phase::kPreempted || sequence.stands() ||
        sequence.pending_end.has_value() || models_->Ready(sequence)) {
      continue;
    }
    const int64_t most =
        std::min({drafting::kMaxDraft, sequence.limit() - sequence.size() - 1, models_->Room(sequence)});
    if (most <= 0) continue;
    ++weighed;
    const int64_t behind = models_->Behind(sequence);
    const std::vector<double> survival = drafter->Expect(static_cast<size_t>(most));
    const drafting::ModelGain gain =
        drafting::GainOf({.survival = survival, .context = sequence.size()}, load, forecast_,
                         models_->forecast(), DraftBounds(load));
    const int64_t answered = sequence.size() - sequence.prompt_tokens;
    const int64_t expected = std::min(sequence.limit() - sequence.size(), answered + kExpectedAnswer);
    forecast::StepLoad whole;
    whole.AddRows(drafter->computed(), behind);
    const double price = others ? models_->forecast().PromptSeconds(whole) : 0;
    if (!(gain.tokens * gain.seconds * static_cast<double>(expected) > price)) continue;
    // While answers run, a piece takes what the SLO leaves of their step, and a block in any case.
    int64_t rows = std::min(behind, options_.step.chunk_tokens);
    if (others) {
      const forecast::StepCost cost = models_->forecast().cost();
      const double left = planner_.slo_tpot() - forecast_.Seconds(load) - cost.base;
      rows = std::min(rows, std::max<int64_t>(kBlockTokens, forecast::RowsWithin(left, cost.token, cost.pair,
                                                                                 drafter->computed())));
    }
    const absl::Time begin = clock_.Now();
    if (!models_->Prefill(sequence, rows)) continue;
    const double seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
    probe_.drafts().ModelComputed(seconds);
    if (others) probe_.drafts().Saved(models_->kind(), -seconds);
    return true;
  }
  return false;
}

}  // namespace baton::decode_service
