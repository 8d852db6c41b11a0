// The scheduler's part in steps: what the next one computes, and what becomes of its tokens.
//
// Where the engine overlaps steps, one is always in flight: the next is planned and launched before the
// tokens of this one are on the host, and its rows continue with future tokens, so that the GPU never waits
// for the host. A sequence may then end with a row already launched: that row was computed in vain, and the
// sequence's blocks are held until the step is complete. The scheduler waits at once for a step with chunks
// of prompts, with rows whose logits are needed on the host, or with drafted tokens (scheduler_drafts.cc).
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "decode_service/scheduler.h"

namespace baton::decode_service {

using Phase = Sequence::Phase;
using State = PlannerSequence::State;

namespace {

// How long a step waits for masks in all, for answers whose masks take less: of its own seconds, and at
// least.
constexpr double kMaskShare = 0.25;
constexpr absl::Duration kLeastMaskPatience = absl::Microseconds(200);

}  // namespace

bool Scheduler::Step() {
  leases_.ReleaseFinished();
  past_answers_.ForgetOld(clock_.Now());
  DrawWaiting();
  Pause();
  ReviewFetches();
  Readmit();
  FailStranded();
  if (in_flight_.has_value() && DraftsWait()) Complete(*std::exchange(in_flight_, std::nullopt));
  GrowOrPreempt();
  std::optional<InFlightStep> next = Launch();
  const bool busy = next.has_value() || in_flight_.has_value();
  if (in_flight_.has_value()) Complete(*in_flight_);
  in_flight_ = std::move(next);
  if (in_flight_.has_value() && !(in_flight_->draws_all && engine_.overlaps())) {
    Complete(*std::exchange(in_flight_, std::nullopt));
  }
  const bool prefilled = PrefillDraftModel();
  TellProgress();
  ObserveSequences();
  return busy || prefilled;
}

void Scheduler::ObserveSequences() {
  Probe::SequenceCounts count;
  for (const auto& [id, sequence] : sequences_) {
    switch (sequence->phase) {
      case Phase::kHandoff:
        ++count.handing_off;
        break;
      case Phase::kFetching:
      case Phase::kPrefilling:
        ++count.prefilling;
        break;
      case Phase::kRunning:
        ++count.running;
        break;
      case Phase::kPreempted:
        ++count.preempted;
        break;
    }
  }
  leases_.ReleaseFinished();
  probe_.Observe(count, engine_.pool().counts());
  probe_.drafts().Remembers(past_answers_.bytes());
  if (models_.has_value() && !models_->self()) {
    const kv::BlockPool::Counts blocks = models_->pool().counts();
    probe_.drafts().ModelHolds(blocks.held, blocks.total);
  }
}

void Scheduler::GrowOrPreempt() {
  while (!Grow()) {
    if (in_flight_.has_value()) {  // no sequence is preempted whose row is in flight
      Complete(*std::exchange(in_flight_, std::nullopt));
      continue;
    }
    // There is always one: the running sequence that could not grow. It has blocks, and its answer has not
    // ended: a sequence with a pending end is handing off or gone, because the end of its hand-off is its own
    // (OnHandoffEnded), so none is ever running.
    const std::optional<SequenceId> victim = StepPlanner::Victim(PlannerView());
    BATON_CHECK(victim.has_value()) << " a running sequence can't grow, and no sequence can be preempted";
    Preempt(*sequences_.at(*victim));
  }
}

bool Scheduler::Grow() {
  return std::ranges::all_of(PlannerView(), [this](const PlannerSequence& sequence) {
    if (sequence.state != State::kRunning) return true;
    return GrowKv(*sequences_.at(sequence.id), StepPlanner::TokensWithBlocks(sequence)).ok();
  });
}

std::vector<PlannerSequence> Scheduler::PlannerView() const {
  std::vector<PlannerSequence> view;
  view.reserve(sequences_.size());
  for (const auto& [id, sequence] : sequences_) {
    PlannerSequence& seen = view.emplace_back(PlannerSequence{.id = id});
    switch (sequence->phase) {
      case Phase::kRunning:
        seen.state = sequence->stands() ? State::kWaiting : State::kRunning;
        break;
      case Phase::kPrefilling:
        // With each of its rows something leaves for the client.
        seen.state = sequence->paused && sequence->owes_prompt() ? State::kWaiting : State::kPrefilling;
        if (sequence->owes_prompt())
          seen.prompt_logits_from = std::max<int64_t>(0, sequence->prompt_told - 1);
        break;
      case Phase::kFetching:
      case Phase::kHandoff:
        seen.state = State::kWaiting;
        break;
      case Phase::kPreempted:
        seen.state = State::kPreempted;
        break;
    }
    seen.size = sequence->size();
    seen.computed = sequence->kv().computed_tokens();
    seen.max_tokens = sequence->prompt_tokens + sequence->max_tokens;
    seen.future_draw = FutureDraw(id);
    seen.preemptible = sequence->phase != Phase::kPreempted && !sequence->pending_end.has_value();
  }
  return view;
}

std::optional<int32_t> Scheduler::FutureDraw(SequenceId id) const {
  if (!in_flight_.has_value()) return std::nullopt;
  // All rows are of running sequences, one each, in order of arrival, and drawn from in that order.
  const std::vector<PlannedRows>& rows = in_flight_->plan.sequences;
  const auto found = std::ranges::lower_bound(rows, id, {}, &PlannedRows::id);
  if (found == rows.end() || found->id != id) return std::nullopt;
  return static_cast<int32_t>(found - rows.begin());
}

std::optional<Scheduler::InFlightStep> Scheduler::Launch() {
  // A sequence whose first token came before its last blocks runs as soon as they are here, and one whose
  // draw waits, as soon as its mask is.
  const bool answers_wait = std::ranges::any_of(sequences_, [](const auto& entry) {
    const Sequence& sequence = *entry.second;
    if (sequence.draw_waits()) return true;
    return sequence.phase == Phase::kHandoff && sequence.report.first_token_sent() &&
           !sequence.pending_end.has_value();
  });
  std::vector<PlannerSequence> view = PlannerView();
  PlanDrafts(view);
  InFlightStep step{.plan = planner_.Plan(view, answers_wait, forecast_)};
  if (step.plan.empty()) return std::nullopt;
  batch_.Clear();
  mask_patience_ = engine_.overlaps() ? kLeastMaskPatience : absl::ZeroDuration();
  for (const PlannedRows& planned : step.plan.sequences) AddRows(planned);
  mask_patience_ = absl::ZeroDuration();
  step.launched = clock_.Now();
  // A token may be drawn for a prompt's only row too, where the rest is cached; but that sequence is not
  // running before the step is complete.
  step.draws_all = batch_.draws_all() && !step.plan.has_prompts() && !step.plan.has_drafts();
  engine_.Launch(batch_, [](int) {});
  leases_.StepLaunched();
  last_load_ = step.plan.load;
  return step;
}

void Scheduler::AddRows(const PlannedRows& planned) {
  Sequence& sequence = *sequences_.at(planned.id);
  if (planned.prompt) sequence.report.PrefillStarted(clock_.Now());
  if (planned.future_draw.has_value()) {
    batch_.AddFuture(*planned.future_draw, planned.first, sequence.kv().blocks());
  } else {
    std::vector<TokenId> drafted;  // behind the last token
    std::span<const TokenId> tokens = std::span(sequence.tokens).subspan(planned.first);
    if (planned.drafted > 0) {
      drafted.assign(tokens.begin(), tokens.end());
      const auto& draft = sequence.draft.tokens;
      drafted.insert(drafted.end(), draft.begin(), draft.begin() + planned.drafted);
      tokens = drafted;
    }
    batch_.Add({.tokens = tokens.first(planned.rows),
                .first_position = planned.first,
                .blocks = sequence.kv().blocks(),
                .logit_rows = planned.logit_rows});
  }
  // The backend draws the token, where it can, unless the client is told something of the logits, the token
  // may be one that no draw decides, its mask is not known before the step, or none is drawn.
  const AnswerText& answer = *sequence.answer;
  if (planned.logit_rows == 0 || answer.shows_logits() || answer.may_force() || sequence.warms()) return;
  if (planned.prompt && sequence.owes_prompt()) return;
  std::span<const uint32_t> mask;
  if (sequence.grammar != nullptr) {
    const auto known = MaskBefore(planned, *sequence.grammar);
    if (!known.has_value()) return;
    mask = *known;
  }
  // With drafts, what is said of the next token has to hold for those behind it. And the device counts one
  // token of a sequence in a step, and must not count one that is refused: with penalties, the host draws.
  if (planned.drafted > 0 && (answer.can_force() || sequence.sampling.Penalises())) return;
  for (int64_t row = 0; row < planned.drafted; ++row) {
    batch_.Draw(sequence.sampling, planned.first + 1 + row);
  }
  if (sequence.sampling.Penalises() && sequence.penalty_slot == nullptr) {
    sequence.penalty_slot = engine_.TakePenaltySlot();
  }
  batch_.Draw(sequence.sampling, planned.first + planned.rows,
              {.slot = sequence.penalty_slot.get(),
               .tokens = sequence.tokens,
               .prompt_tokens = sequence.prompt_tokens},
              mask);
}

std::optional<std::span<const uint32_t>> Scheduler::MaskBefore(const PlannedRows& planned,
                                                               AnswerGrammar& grammar) {
  // Behind a token that is not drawn yet, or only guessed, there is none.
  if (!engine_.overlaps() || planned.future_draw.has_value() || planned.drafted > 0) return std::nullopt;
  if (!grammar.Ready(mask_patience_)) return std::nullopt;
  const auto mask = grammar.Mask();
  if (!mask.ok()) return std::nullopt;  // the draw says why
  return *mask;
}

void Scheduler::Count(const InFlightStep& step, absl::Duration took) {
  const forecast::StepLoad& load = step.plan.load;
  // A step without running sequences was for its prompts alone.
  const double whole = load.running > 0 ? forecast_.Seconds(load) : forecast_.PromptSeconds(load);
  for (const PlannedRows& planned : step.plan.sequences) {
    const auto found = sequences_.find(planned.id);
    if (found == sequences_.end()) continue;  // it ended while the step was in flight
    Sequence& sequence = *found->second;
    const int64_t first = sequence.kv().computed_tokens();
    if (planned.prompt && whole > 0) {
      forecast::StepLoad chunk;
      chunk.AddRows(first, planned.rows);
      sequence.report.ComputedHere(took * std::min(1.0, forecast_.PromptSeconds(chunk) / whole));
    }
    // With drafted tokens, that depends on which of them are kept (EmitFrom).
    if (planned.drafted == 0) sequence.kv().Computed(sequence.tokens, first + planned.rows);
  }
}

void Scheduler::Complete(const InFlightStep& step) {
  const engine::StepResult result = engine_.Finish();
  leases_.StepCompleted();
  const absl::Time begun = std::max(step.launched, last_completion_);
  const absl::Duration took = clock_.Now() - begun;
  Count(step, took);
  if (const forecast::StepLoad& load = step.plan.load; load.running > 0) {
    mean_context_ = static_cast<double>(load.context) / static_cast<double>(load.running);
    if (!step.plan.has_prompts()) {
      const double plain = absl::ToDoubleSeconds(took) * forecast_.PlainShare(load);
      totals_.Add(plain, load.running, load.context);
    }
  }
  mask_patience_ = std::max(kLeastMaskPatience, (clock_.Now() - begun) * kMaskShare);
  int64_t decode_rows = 0, prefill_rows = 0;
  bool told = false;
  for (int64_t share = 0; share < result.sequences(); ++share) {
    const PlannedRows& planned = step.plan.sequences[static_cast<size_t>(share)];
    (planned.prompt ? prefill_rows : decode_rows) += result.rows(share);
    const auto found = sequences_.find(planned.id);
    if (found == sequences_.end()) continue;      // it ended while the step was in flight
    if (result.logit_rows(share) == 0) continue;  // a chunk, and not the prompt's last
    if (planned.prompt && found->second->owes_prompt()) {
      told = true;
      if (const absl::Status told = TellPrompt(result, share, planned, *found->second); !told.ok()) {
        Fail(planned.id, *found->second, told);
        continue;
      }
    }
    if (planned.prompt && planned.first + planned.rows < found->second->size()) continue;
    EmitFrom(result, share, planned, *found->second);
  }
  WakeMasks();
  mask_patience_ = absl::ZeroDuration();
  const absl::Time now = clock_.Now();
  probe_.Stepped(decode_rows, prefill_rows, now - begun);
  // Logits of a whole prompt, and the work of telling them, are nothing that the load describes.
  if (!told) forecast_.Observe(step.plan.load, absl::ToDoubleSeconds(now - begun));
  CountSavings(step);
  last_completion_ = now;
}

void Scheduler::EmitFrom(const engine::StepResult& result, int64_t share, const PlannedRows& planned,
                         Sequence& sequence) {
  BATON_CHECK(sequence.phase == Phase::kPrefilling || sequence.phase == Phase::kRunning);
  const SequenceId id = planned.id;
  if (sequence.phase == Phase::kPrefilling) {
    sequence.phase = Phase::kRunning;
    sequence.report.PromptComputed(clock_.Now());
  }
  if (sequence.warms()) return FinishWarm(id, sequence);
  // Each row gives the token that a step for it alone would give. The first one that is not what was drafted
  // stands, and the rows behind it were computed for a token that is not there: nothing of them counts, and
  // the next step writes over their KV before anything reads it.
  if (planned.drafted > 0) DraftChecked(sequence, planned.drafted);
  const int64_t last = result.logit_rows(share) - 1;
  for (int64_t row = planned.prompt ? last : 0; row <= last; ++row) {
    if (planned.drafted > 0) sequence.kv().Computed(sequence.tokens, planned.first + row + 1);
    sequence.checks.reset();
    if (row < planned.drafted) sequence.checks = static_cast<size_t>(row);
    EmitRow(result, share, row, id, sequence);
    if (!sequences_.contains(id)) return;
    if (sequence.draw_waits()) break;  // what was drafted behind it is given up
    if (!sequence.checks.has_value() || sequence.tokens.back() != sequence.draft.tokens[*sequence.checks])
      break;
  }
  sequence.checks.reset();
  Send(sequence);
  if (planned.drafted > 0) sequence.kv().Trim(sequence.capacity());
}

void Scheduler::EmitRow(const engine::StepResult& result, int64_t share, int64_t row, SequenceId id,
                        Sequence& sequence) {
  if (const std::optional<TokenId> token = result.drawn(share, row)) {
    Emit(id, sequence, {.token = *token}, 0);
  } else if (result.logits(share, row).empty()) {
    // No logit was a number, and the step that was launched meanwhile has overwritten them.
    Fail(id, sequence, sampling::NothingLeft(engine_.config().vocabulary));
  } else {
    SampleAndEmit(id, sequence, result.logits(share, row));
  }
}

}  // namespace baton::decode_service
