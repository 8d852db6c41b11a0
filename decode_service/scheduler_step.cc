// The scheduler's part in steps: what the next one computes, and what becomes of its tokens.
//
// Where the engine overlaps steps, one is always in flight: the next is planned and launched before the
// tokens of this one are on the host, and its rows continue with future tokens, so that the GPU never waits
// for the host. A sequence may then end with a row already launched: that row was computed in vain, and the
// sequence's blocks are held until the step is complete. The scheduler waits at once for a step with chunks
// of prompts, or with rows whose logits are needed on the host.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "decode_service/scheduler.h"

namespace baton::decode_service {

using Phase = Sequence::Phase;
using State = PlannerSequence::State;

bool Scheduler::Step() {
  leases_.ReleaseFinished();
  Pause();
  ReviewFetches();
  Readmit();
  GrowOrPreempt();
  std::optional<InFlightStep> next = Launch();
  const bool busy = next.has_value() || in_flight_.has_value();
  if (in_flight_.has_value()) Complete(*in_flight_);
  in_flight_ = std::move(next);
  if (in_flight_.has_value() && !(in_flight_->draws_all && engine_.overlaps())) {
    Complete(*std::exchange(in_flight_, std::nullopt));
  }
  ObserveSequences();
  return busy;
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
        seen.state = sequence->paused ? State::kWaiting : State::kRunning;
        break;
      case Phase::kPrefilling:
        seen.state = State::kPrefilling;
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
  // A sequence whose first token came before its last blocks runs as soon as they are here.
  const bool answers_wait = std::ranges::any_of(sequences_, [](const auto& entry) {
    const Sequence& sequence = *entry.second;
    return sequence.phase == Phase::kHandoff && sequence.report.first_token_sent() &&
           !sequence.pending_end.has_value();
  });
  InFlightStep step{.plan = planner_.Plan(PlannerView(), answers_wait, forecast_)};
  if (step.plan.empty()) return std::nullopt;
  batch_.Clear();
  for (const PlannedRows& planned : step.plan.sequences) AddRows(planned);
  step.launched = clock_.Now();
  // A token may be drawn for a prompt's only row too, where the rest is cached; but that sequence is not
  // running before the step is complete.
  step.draws_all = batch_.draws_all() && !step.plan.has_prompts();
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
    batch_.Add({.tokens = std::span(sequence.tokens).subspan(planned.first, planned.rows),
                .first_position = planned.first,
                .blocks = sequence.kv().blocks(),
                .logit_rows = planned.logit_rows});
  }
  // The backend draws the token, where it can, unless the client is told something of the logits, the token
  // may be one that no draw decides, a grammar says which tokens there are, or none is drawn.
  const Outbox& outbox = *sequence.outbox;
  const bool host =
      outbox.shows_logits() || outbox.may_force() || outbox.grammar() != nullptr || sequence.warms();
  if (planned.logit_rows == 0 || host) return;
  if (sequence.sampling.Penalises() && sequence.penalty_slot == nullptr) {
    sequence.penalty_slot = engine_.TakePenaltySlot();
  }
  batch_.Draw(sequence.sampling, planned.first + planned.rows,
              {.slot = sequence.penalty_slot.get(),
               .tokens = sequence.tokens,
               .prompt_tokens = sequence.prompt_tokens});
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
    sequence.kv().Computed(sequence.tokens, first + planned.rows);
  }
}

void Scheduler::Complete(const InFlightStep& step) {
  const engine::StepResult result = engine_.Finish();
  leases_.StepCompleted();
  const absl::Time begun = std::max(step.launched, last_completion_);
  Count(step, clock_.Now() - begun);
  int64_t decode_rows = 0, prefill_rows = 0;
  for (int64_t share = 0; share < result.sequences(); ++share) {
    const PlannedRows& planned = step.plan.sequences[static_cast<size_t>(share)];
    (planned.prompt ? prefill_rows : decode_rows) += result.rows(share);
    const auto found = sequences_.find(planned.id);
    if (found == sequences_.end()) continue;      // it ended while the step was in flight
    if (result.logit_rows(share) == 0) continue;  // a chunk, and not the prompt's last
    EmitFrom(result, share, planned.id, *found->second);
  }
  const absl::Time now = clock_.Now();
  probe_.Stepped(decode_rows, prefill_rows, now - begun);
  forecast_.Observe(step.plan.load, absl::ToDoubleSeconds(now - begun));
  last_completion_ = now;
}

void Scheduler::EmitFrom(const engine::StepResult& result, int64_t share, SequenceId id, Sequence& sequence) {
  BATON_CHECK(sequence.phase == Phase::kPrefilling || sequence.phase == Phase::kRunning);
  if (sequence.phase == Phase::kPrefilling) {
    sequence.phase = Phase::kRunning;
    sequence.report.PromptComputed(clock_.Now());
  }
  if (sequence.warms()) return FinishWarm(id, sequence);
  if (const std::optional<TokenId> token = result.drawn(share)) {
    Emit(id, sequence, {.token = *token}, 0);
  } else if (result.logits(share).empty()) {
    // No logit was a number, and the step that was launched meanwhile has overwritten them.
    Fail(id, sequence, sampling::NothingLeft(engine_.config().vocabulary));
  } else {
    SampleAndEmit(id, sequence, result.logits(share));
  }
}

}  // namespace baton::decode_service
