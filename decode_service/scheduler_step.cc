// The scheduler's part in steps: what the next one computes, and what becomes of its tokens.
//
// Where the engine overlaps steps, one is always under way: the next is planned and launched before its
// tokens are home, its rows going on from whatever these turn out to be, so that the GPU never waits for the
// host. A sequence may then end with a row already launched: that row was computed in vain, and the
// sequence's blocks are held until it has landed. Steps that change more than the tail of running sequences
// (chunks of prompts, rows whose logits come home) are waited for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "decode_service/scheduler.h"

namespace baton::decode_service {

using Phase = Sequence::Phase;

bool Scheduler::Step() {
  Sweep();
  Pause();
  ReviewFetches();
  Readmit();
  while (!Grow()) {
    if (flight_.has_value()) {  // nobody is set aside who is under way
      Land(*std::exchange(flight_, std::nullopt));
      continue;
    }
    const auto victim = std::find_if(sequences_.rbegin(), sequences_.rend(), [](const auto& entry) {
      return entry.second->phase != Phase::kPreempted && !entry.second->pending_end.has_value();
    });
    Preempt(*victim->second);
  }
  std::optional<Flight> next = Launch();
  const bool busy = next.has_value() || flight_.has_value();
  if (flight_.has_value()) Land(*flight_);
  flight_ = std::move(next);
  if (flight_.has_value() && !(flight_->drawn && engine_.overlaps())) {
    Land(*std::exchange(flight_, std::nullopt));
  }
  size_t counts[5] = {};
  for (const auto& [id, sequence] : sequences_) ++counts[static_cast<int>(sequence->phase)];
  Sweep();
  probe_.Observe(counts[0], counts[1] + counts[4], counts[2], counts[3], engine_.pool().counts());
  return busy;
}

bool Scheduler::Grow() {
  return std::ranges::all_of(sequences_, [this](const auto& entry) {
    const auto& [id, sequence] = entry;
    if (sequence->phase != Phase::kRunning || sequence->paused) return true;
    return GrowKv(*sequence, sequence->size() + (Awaited(id).has_value() ? 1 : 0)).ok();
  });
}

std::optional<int32_t> Scheduler::Awaited(SequenceId id) const {
  if (!flight_.has_value()) return std::nullopt;
  // All are running sequences, in the order of arrival.
  const auto found = std::ranges::lower_bound(flight_->sequences, id);
  if (found == flight_->sequences.end() || *found != id) return std::nullopt;
  return static_cast<int32_t>(found - flight_->sequences.begin());
}

std::optional<Scheduler::Flight> Scheduler::Launch() {
  Flight flight;
  Plan(flight);
  if (flight.sequences.empty()) return std::nullopt;
  flight.launched = clock_.Now();
  // A prompt of one row, the rest being cached, may be drawn from too; but it is not running before it
  // landed.
  flight.drawn = batch_.draws_all() && !flight.prompts;
  engine_.Launch(batch_, [](int) {});
  ++launched_;
  last_load_ = flight.load;
  return flight;
}

void Scheduler::Plan(Flight& flight) {
  batch_.Clear();
  int64_t budget = options_.token_budget;
  const auto add = [&flight](SequenceId id, int64_t rows) {
    flight.sequences.push_back(id);
    flight.rows.push_back(rows);
  };
  // Of the sequence that was added last: the backend draws its token, where it can and nobody asks for
  // logits.
  const auto let_draw = [this](Sequence& sequence, int64_t position) {
    if (sequence.outbox->shows_logits()) return;
    if (sequence.sampling.Penalises() && sequence.penalty_slot == nullptr) {
      sequence.penalty_slot = engine_.TakePenaltySlot();
    }
    batch_.Draw(sequence.sampling, position,
                {.slot = sequence.penalty_slot.get(),
                 .tokens = sequence.tokens,
                 .prompt_tokens = sequence.prompt_tokens});
  };
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase != Phase::kRunning || sequence->paused) continue;
    if (const std::optional<int32_t> draw = Awaited(id)) {
      // The token that it waits for may be its last, and then there is no place for another.
      if (sequence->size() + 1 >= sequence->prompt_tokens + sequence->max_tokens) continue;
      batch_.AddFuture(*draw, sequence->size(), sequence->kv->blocks());
      let_draw(*sequence, sequence->size() + 1);
    } else {
      batch_.Add({.tokens = std::span(sequence->tokens).last(1),
                  .first_position = sequence->size() - 1,
                  .blocks = sequence->kv->blocks(),
                  .logit_rows = 1});
      let_draw(*sequence, sequence->size());
    }
    add(id, 1);
    ++flight.load.running;
    flight.load.context += sequence->size();
    --budget;
  }
  // Running sequences are never held up for want of budget; prompts take what they leave, at least one block
  // a step.
  budget = std::max<int64_t>(budget, kBlockTokens);
  double seconds = SecondsForPrompts(flight.load);
  const forecast::StepCost cost = forecast_.cost();
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase != Phase::kPrefilling || budget <= 0) continue;
    const int64_t first = sequence->kv->computed_tokens();
    int64_t rows = std::min({sequence->remaining(), options_.chunk_tokens, budget});
    if (std::isfinite(seconds)) {
      int64_t within = forecast::RowsWithin(seconds, cost.token, cost.pair, first);
      within -= within % kBlockTokens;
      rows = std::min(rows, flight.prompts ? within : std::max<int64_t>(within, kBlockTokens));
      if (rows == 0) break;
      forecast::StepLoad chunk;
      chunk.AddRows(first, rows);
      seconds -= forecast_.PromptSeconds(chunk);
    }
    flight.load.AddRows(first, rows);
    if (sequence->times.prefill_started == absl::Time()) sequence->times.prefill_started = clock_.Now();
    const bool whole = rows == sequence->remaining();
    batch_.Add({.tokens = std::span(sequence->tokens).subspan(first, rows),
                .first_position = first,
                .blocks = sequence->kv->blocks(),
                .logit_rows = whole ? 1 : 0});
    if (whole) let_draw(*sequence, sequence->size());
    add(id, rows);
    flight.prompts = true;
    budget -= rows;
  }
}

double Scheduler::SecondsForPrompts(const forecast::StepLoad& load) const {
  // One whose first token came before its last blocks runs as soon as they are here.
  const bool awaited = load.running > 0 || std::ranges::any_of(sequences_, [](const auto& entry) {
                         const Sequence& sequence = *entry.second;
                         return sequence.phase == Phase::kHandoff &&
                                sequence.times.first_token != absl::Time() &&
                                !sequence.pending_end.has_value();
                       });
  if (!awaited) return std::numeric_limits<double>::infinity();
  return options_.slo_tpot - forecast_.Seconds(load);
}

void Scheduler::Count(const Flight& flight, absl::Duration took) {
  const double all = forecast_.Seconds(flight.load), prompts = forecast_.PromptSeconds(flight.load);
  // Of a step without running sequences all was for its prompts.
  const double whole = flight.load.running > 0 ? all : prompts;
  for (size_t i = 0; i < flight.sequences.size(); ++i) {
    const auto found = sequences_.find(flight.sequences[i]);
    if (found == sequences_.end()) continue;  // it ended while the step was under way
    Sequence& sequence = *found->second;
    const int64_t first = sequence.kv->computed_tokens();
    if (sequence.phase == Phase::kPrefilling && whole > 0) {
      forecast::StepLoad chunk;
      chunk.AddRows(first, flight.rows[i]);
      sequence.times.computed_here +=
          absl::ToDoubleSeconds(took) * std::min(1.0, forecast_.PromptSeconds(chunk) / whole);
    }
    sequence.kv->Computed(sequence.tokens, first + flight.rows[i]);
  }
}

void Scheduler::Land(const Flight& flight) {
  const engine::StepResult result = engine_.Finish();
  ++landed_;
  const absl::Time begun = std::max(flight.launched, last_landing_);
  Count(flight, clock_.Now() - begun);
  int64_t decode_rows = 0, prefill_rows = 0;
  for (size_t i = 0; i < flight.sequences.size(); ++i) {
    const SequenceId id = flight.sequences[i];
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) {  // it ended while the step was under way
      ++decode_rows;
      continue;
    }
    Sequence& sequence = *found->second;
    BATON_CHECK(sequence.phase == Phase::kPrefilling || sequence.phase == Phase::kRunning);
    (sequence.phase == Phase::kPrefilling ? prefill_rows : decode_rows) += flight.rows[i];
    const auto share = static_cast<int64_t>(i);
    if (result.logit_rows(share) == 0) continue;  // a chunk, and not the prompt's last
    if (sequence.phase == Phase::kPrefilling) StartRunning(sequence);
    if (const std::optional<TokenId> token = result.drawn(share)) {
      Emit(id, sequence, {.token = *token}, 0);
    } else if (result.logits(share)
                   .empty()) {  // no logit is a number, and the next step has the place of the logits
      Fail(id, sequence, sampling::NothingLeft(engine_.config().vocabulary));
    } else {
      SampleAndEmit(id, sequence, result.logits(share));
    }
  }
  const absl::Time now = clock_.Now();
  probe_.Stepped(decode_rows, prefill_rows, now - begun);
  forecast_.Observe(flight.load, absl::ToDoubleSeconds(now - begun));
  last_landing_ = now;
}

void Scheduler::StartRunning(Sequence& sequence) {
  sequence.phase = Phase::kRunning;
  if (sequence.times.first_token != absl::Time()) return;
  // The rest since its reservation it waited: for a fetch, for prompts before it, for running sequences'
  // rows.
  const double taken = absl::ToDoubleSeconds(clock_.Now() - sequence.times.reserved);
  sequence.times.prefill = std::min(taken, sequence.times.computed_here);
  sequence.times.prefill_queue = taken - sequence.times.prefill;
  sequence.times.transfer = 0;
}

}  // namespace baton::decode_service
