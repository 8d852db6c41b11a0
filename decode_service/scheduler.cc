#include "decode_service/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "protocol/client/token_ids.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "protocol/fleet/lease_wire.h"
#include "protocol/fleet/prompt_checksum.h"
#include "protocol/fleet/reusable_wire.h"
#include "spdlog/spdlog.h"
#include "transfer/fetch/peer_server.h"

namespace baton::decode_service {
namespace {

using Phase = Sequence::Phase;

// A full worker frees blocks at the pace of its running sequences: ask again soon.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(200);

// Bytes of logits of prompts' rows in a step, unless those of the fewest rows are more: beyond
// kernels::kMaxVerifyRows, so that a device takes them for a prompt's.
constexpr int64_t kMaxLogitBytes = int64_t{16} << 20;
constexpr int64_t kFewestLogitRows = 3 * kBlockTokens;

StepLimits WithLogitRows(StepLimits limits, int64_t vocabulary) {
  const int64_t rows = kMaxLogitBytes / (vocabulary * static_cast<int64_t>(sizeof(float)));
  limits.logit_rows = std::max<int64_t>(kFewestLogitRows, rows / kBlockTokens * kBlockTokens);
  return limits;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, engine::Engine& engine, transfer::LinkReceiver& link,
                     PrefillClient& prefill, const Clock& clock, Probe& probe,
                     const fetch::PeerFetch& peer_fetch)
    : options_(options),
      planner_(WithLogitRows(options.step, engine.config().vocabulary)),
      engine_(engine),
      link_(link),
      prefill_(prefill),
      clock_(clock),
      probe_(probe),
      peer_fetch_(peer_fetch),
      forecast_(options.step_cost) {
  if (options_.draft_model.engine == nullptr) return;
  models_.emplace(options_.draft_model, options_.draft_model.engine == &engine_, clock_);
}

Scheduler::~Scheduler() {
  if (in_flight_.has_value()) engine_.Finish();
}

size_t Scheduler::running() const {
  return std::count_if(sequences_.begin(), sequences_.end(),
                       [](const auto& entry) { return entry.second->phase == Phase::kRunning; });
}

int64_t Scheduler::AnswersInTime() const {
  return forecast::AnswersInTime(planner_.slo_tpot(), options_.max_sequences, [this](int64_t answers) {
    const double context = mean_context_ * static_cast<double>(answers);
    return forecast_.Seconds({.running = answers, .context = static_cast<int64_t>(context)});
  });
}

int64_t Scheduler::pending_tokens() const {
  int64_t tokens = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase == Phase::kPreempted) tokens += sequence->size();
    if (sequence->phase == Phase::kPrefilling || sequence->phase == Phase::kFetching) {
      tokens += sequence->remaining();
    }
  }
  return tokens;
}

absl::Status Scheduler::Submit(SequenceId id, std::unique_ptr<Sequence> owned) {
  Sequence& sequence = *owned;
  const absl::Time arrival = clock_.Now();
  const int64_t total = engine_.pool().counts().total;
  const int64_t max_blocks = BlocksFor(sequence.prompt_tokens + sequence.max_tokens);
  if (max_blocks > total) {
    return absl::FailedPreconditionError(
        fmt::format("prompt of {} and max_tokens of {} take {} KV blocks, decode worker {} has {}: raise its "
                    "--kv-memory or "
                    "lower max_tokens",
                    sequence.prompt_tokens, sequence.max_tokens, max_blocks, options_.worker_id, total));
  }
  BATON_CHECK(sequence.chain.root() != kv::BlockHash());
  if (!sequence.chain.spans().empty() && !options_.chunk_reuse) {
    return absl::FailedPreconditionError(fmt::format(
        "reusable: decode worker {} takes no reusable spans: start it with --chunk-reuse, or mark none",
        options_.worker_id));
  }
  if (sequences_.size() >= options_.max_sequences) {
    return rpc::WithRetryDelay(
        absl::ResourceExhaustedError(fmt::format("decode worker {} runs {} sequences, as many as it may",
                                                 options_.worker_id, sequences_.size())),
        kRetryDelay);
  }
  sequence.report.Arrived(arrival, options_.worker_id, sequence.prompt_tokens);
  sequence.report.Marked(sequence.leases);
  sequence.report.Approximate(kv::LandedTokens(sequence.chain.spans()));
  engine_.pool().Advance(arrival);
  sequence.kv().Lease(sequence.leases, arrival);
  if (sequence.pending_end.has_value()) {  // nothing is left to compute
    sequence.report.Reserved(arrival, 0);
    probe_.Admitted(0, 0);
    sequences_.emplace(id, std::move(owned));
    fleet::v1::DecodeEvent event;
    event.mutable_accepted();
    sequence.send(std::move(event));
    Finish(id, sequence, *sequence.pending_end);
    return absl::OkStatus();
  }
  const bool queue = std::any_of(sequences_.begin(), sequences_.end(),
                                 [](const auto& entry) { return entry.second->phase == Phase::kPreempted; });
  const auto reserve = [&] { return sequence.kv().Reserve(sequence.tokens, sequence.capacity()).ok(); };
  // Preempted sequences come first, and fetches by peers last.
  if (queue ||
      !(reserve() || (peer_fetch_.server != nullptr && peer_fetch_.server->MakeRoom() && reserve()))) {
    return rpc::WithRetryDelay(
        absl::ResourceExhaustedError(fmt::format(
            "decode worker {} has no KV blocks for a prompt of {} tokens now: {} of {} can be had",
            options_.worker_id, sequence.size(), engine_.pool().available(), total)),
        kRetryDelay);
  }
  sequence.report.Reserved(clock_.Now(), sequence.kv().cached_tokens());
  probe_.Admitted(sequence.size(), sequence.kv().cached_tokens());
  BeginDrafts(sequence);
  sequences_.emplace(id, std::move(owned));
  if (sequence.tells_prompt || !StartFetch(id, sequence)) StartPrefill(id, sequence);
  fleet::v1::DecodeEvent event;
  fleet::v1::Accepted& accepted = *event.mutable_accepted();
  accepted.set_cached_tokens(static_cast<uint32_t>(sequence.kv().cached_tokens()));
  accepted.set_reserved_blocks(static_cast<uint32_t>(sequence.kv().blocks().size()));
  accepted.set_local_prefill(sequence.phase != Phase::kHandoff);
  sequence.send(std::move(event));
  return absl::OkStatus();
}

void Scheduler::StartPrefill(SequenceId id, Sequence& sequence) {
  const bool asked_all = sequence.next_target >= sequence.targets.size();
  if (sequence.owes_prompt()) {
    sequence.phase = Phase::kPrefilling;
    sequence.prefills_from = sequence.kv().computed_tokens();
    return;
  }
  if (sequence.lands()) {
    if (asked_all) {
      sequence.phase = Phase::kHandoff;  // of nobody
      stranded_.push_back(id);
      return;
    }
  } else if (asked_all || sequence.remaining() <= options_.local_prefill_tokens) {
    sequence.phase = Phase::kPrefilling;
    sequence.prefills_from = sequence.kv().computed_tokens();
    return;
  }
  const fleet::v1::PrefillTarget& target = sequence.targets[sequence.next_target];
  protocol::Ticket ticket{
      options_.incarnation, TicketId(next_ticket_++), sequence.kv().computed_tokens() / kBlockTokens, {}};
  for (int64_t block = ticket.first_block; block < BlocksFor(sequence.size()); ++block) {
    ticket.generations.push_back(engine_.pool().generation(sequence.kv().blocks()[block]));
  }
  fleet::v1::PrefillRequest request;
  request.set_request_id(sequence.request_id);
  *request.mutable_fingerprint() = protocol::ToProto(engine_.fingerprint());
  request.mutable_fingerprint()->set_link(link_.pairing());
  protocol::AddTokens(sequence.tokens, request.mutable_token_ids());
  request.set_salt(sequence.salt);
  protocol::ToProto(sequence.chain.spans(), request.mutable_reusable());
  request.set_prompt_crc32c(protocol::PromptChecksum(request));
  request.set_priority(sequence.priority);
  protocol::ToProto(sequence.leases, request.mutable_leases());
  if (target.fetch().address() != target.address()) *request.mutable_fetch() = target.fetch();
  sequence.phase = Phase::kHandoff;
  sequence.handoff_tokens = sequence.size();
  sequence.handoff_started = clock_.Now();
  sequence.handoff_explained = 0;
  sequence.handed_off.Clear();
  sequence.report.PrefillStarted(clock_.Now());
  sequence.lease.handoff = std::make_unique<Handoff>(
      target.worker(), std::move(ticket), sequence.kv().blocks(), engine_.store(), link_,
      engine_.config().vocabulary,
      Handoff::Callbacks{
          .progress =
              [this, id](const fleet::v1::PrefillProgress& progress) {
                OnHandoffProgress(*sequences_.at(id), progress);
              },
          .logits = [this, id](std::span<const float> logits,
                               const fleet::v1::PrefillDone& done) { OnLogits(id, logits, done); },
          .ended = [this, id](absl::Status status) { OnHandoffEnded(id, status); }});
  sequence.lease.handoff->Start(prefill_, target.address(), std::move(request), sequence.deadline,
                                sequence.trace);
}

void Scheduler::FailStranded() {
  for (const SequenceId id : std::exchange(stranded_, {})) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) continue;
    Fail(id, *found->second,
         absl::UnavailableError(
             "no prefill worker could be asked, and a prompt with reusable spans needs one"));
  }
}

void Scheduler::OnLogits(SequenceId id, std::span<const float> logits, const fleet::v1::PrefillDone& done) {
  Sequence& sequence = *sequences_.at(id);
  sequence.handoff_explained = done.queue_seconds() + done.compute_seconds();
  sequence.report.LogitsArrived(clock_.Now(), done);
  sequence.handed_off.set_state(v1::Progress::STATE_SHIPPING);
  if (sequence.warms()) return;  // it ends with the hand-off
  SampleAndEmit(id, sequence, logits);
  if (sequences_.contains(id)) Send(sequence);
}

void Scheduler::OnHandoffEnded(SequenceId id, const absl::Status& status) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence& sequence = *found->second;
  // This is a callback of the hand-off: it lives until ReleaseFinished.
  const Handoff& handoff = *sequence.lease.handoff;
  leases_.Release({.handoff = std::move(sequence.lease.handoff)});
  const transfer::Intake& intake = handoff.intake();
  sequence.report.Shipped(link_.name(), intake.received_blocks(), intake.received_bytes());
  if (status.ok()) {
    sequence.report.HandedOff(handoff.worker());
    probe_.HandedOff(intake.received_blocks(), intake.received_bytes(),
                     absl::Seconds(sequence.report.transfer_seconds()));
    rates_.Observe(
        handoff.worker(), intake.received_bytes(),
        absl::ToDoubleSeconds(clock_.Now() - sequence.handoff_started) - sequence.handoff_explained);
    sequence.kv().Computed(sequence.tokens, sequence.handoff_tokens);
    sequence.phase = Phase::kRunning;
    if (sequence.warms()) return FinishWarm(id, sequence);
    if (sequence.pending_end.has_value()) Finish(id, sequence, *sequence.pending_end);
    return;
  }
  sequence.undrawn.clear();  // they come again
  probe_.HandOffFailed();
  if (handoff.refused_write()) probe_.LateWriteRefused();
  spdlog::warn("request {}, trace {}: hand-off from {} failed with {} of {} blocks committed: {}",
               sequence.request_id, sequence.trace.TraceIdText(), handoff.worker(), intake.received_blocks(),
               intake.ticket().blocks(), status.ToString());
  // The committed blocks are a valid prefix. The block of the last token is computed again, for its logits.
  const int64_t computed = std::min(intake.committed_blocks() * kBlockTokens,
                                    (sequence.handoff_tokens - 1) / kBlockTokens * kBlockTokens);
  if (computed > sequence.kv().computed_tokens()) sequence.kv().Computed(sequence.tokens, computed);
  sequence.report.HandOffFailed();
  ++sequence.next_target;
  if (sequence.pending_end.has_value()) {
    Finish(id, sequence, *sequence.pending_end);
    return;
  }
  if (!GrowKv(sequence, sequence.capacity()).ok()) {
    Preempt(sequence);
    return;
  }
  StartPrefill(id, sequence);
}

void Scheduler::SampleAndEmit(SequenceId id, Sequence& sequence, std::span<const float> logits) {
  std::span<const uint32_t> mask;
  if (AnswerGrammar* const grammar = sequence.grammar.get();
      grammar != nullptr && !sequence.answer->forced().has_value()) {
    if (!grammar->Ready(mask_patience_)) {
      sequence.undrawn.assign(logits.begin(), logits.end());
      probe_.DrawWaits();
      return;
    }
    const auto allowed = grammar->Mask();
    if (!allowed.ok()) return Fail(id, sequence, allowed.status());
    mask = *allowed;
  }
  const auto position = static_cast<uint64_t>(sequence.size());
  const std::optional<TokenId> forced = sequence.answer->forced();
  absl::StatusOr<sampling::Draw> draw = sampler_.Sample(logits, sequence.sampling, sequence.history, position,
                                                        sequence.answer->logprobs(), forced, mask);
  if (draw.ok() && options_.replay) {
    if (const auto token = options_.replay(sequence); token.has_value()) {
      return Emit(id, sequence, {.token = *token}, 0);
    }
  }
  if (!draw.ok()) {  // no logit is a number: this request ends, not the worker
    Fail(id, sequence, draw.status());
    return;
  }
  if (sequence.answer->explains()) {
    draw->trace = sampler_.Explain(logits, sequence.sampling, sequence.history, position, draw->token,
                                   forced.has_value(), mask);
  }
  Emit(id, sequence, *draw, sequence.answer->digests_logits() ? Crc32c(std::as_bytes(logits)) : 0);
}

absl::Status Scheduler::TellPrompt(const engine::StepResult& result, int64_t share,
                                   const PlannedRows& planned, Sequence& sequence) {
  const int64_t first = planned.first + planned.rows - result.logit_rows(share);
  if (sequence.prompt_told == 0) {
    sequence.answer->TellPrompt({.token = sequence.tokens.front(), .logprob = 0, .top = {}},
                                *sequence.unsent.mutable_delta());
    ++sequence.prompt_told;
  }
  for (int64_t row = 0; row < result.logit_rows(share) && sequence.owes_prompt(); ++row) {
    // The row of a token says what comes behind it.
    if (first + row + 1 != sequence.prompt_told) continue;
    const TokenId token = sequence.tokens[static_cast<size_t>(sequence.prompt_told)];
    // As the model has it: what changes a draw is about the answer.
    BATON_ASSIGN_OR_RETURN(
        const sampling::Draw draw,
        sampler_.Sample(result.logits(share, row), {.temperature = 0}, {},
                        static_cast<uint64_t>(sequence.prompt_told), sequence.answer->top_logprobs(), token));
    sequence.answer->TellPrompt(draw, *sequence.unsent.mutable_delta());
    ++sequence.prompt_told;
  }
  Send(sequence);
  return absl::OkStatus();
}

void Scheduler::DrawWaiting() {
  for (auto next = sequences_.begin(); next != sequences_.end();) {
    const auto [id, sequence] = std::pair(next->first, next->second.get());
    ++next;  // before its answer ends
    if (!sequence->draw_waits() || !sequence->grammar->Ready(mask_patience_)) continue;
    const std::vector<float> logits = std::exchange(sequence->undrawn, {});
    SampleAndEmit(id, *sequence, logits);
    if (sequences_.contains(id)) Send(*sequence);
  }
  WakeMasks();
}

void Scheduler::WakeMasks() {
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->grammar == nullptr) continue;
    sequence->grammar->Wake();
    return;  // one pool computes them all
  }
}

void Scheduler::Emit(SequenceId id, Sequence& sequence, const sampling::Draw& draw, uint32_t logits_digest) {
  sequence.history.AddOutput(draw.token);
  sequence.tokens.push_back(draw.token);
  if (sequence.even_frames) Send(sequence);
  fleet::v1::DecodeEvent& event = sequence.unsent;
  const auto end = sequence.answer->Push(draw, logits_digest, *event.mutable_delta(), sequence.grammar.get());
  const bool first = !sequence.report.first_token_sent();
  if (first && sequence.resumed_tokens == 0) *event.mutable_opening() = sequence.report.Opening();
  if (sequence.checks.has_value() && draw.token == sequence.draft.tokens[*sequence.checks]) {
    sequence.report.Accepted();
    DraftAccepted(sequence);
  }
  const absl::Duration took = sequence.report.TokenSent(clock_.Now(), totals_);
  first ? probe_.FirstToken(took) : probe_.NextToken(took);
  if (!end.has_value()) {
    FollowDrafts(sequence);
    return;
  }
  if (sequence.phase == Phase::kHandoff) {
    sequence.pending_end = end;
  } else {
    Finish(id, sequence, *end);
  }
}

void Scheduler::Send(Sequence& sequence) {
  if (!sequence.unsent.has_delta()) return;
  fleet::v1::DecodeEvent event = std::exchange(sequence.unsent, {});
  if (const AnswerParts* const parts = sequence.answer->parts(); parts != nullptr) {
    event.set_thinking_tokens(static_cast<uint32_t>(parts->thinking_tokens()));
  }
  event.set_drafted_tokens(sequence.report.drafted_tokens());
  event.set_accepted_tokens(sequence.report.accepted_tokens());
  sequence.send(std::move(event));
}

void Scheduler::FinishWarm(SequenceId id, Sequence& sequence) {
  Finish(id, sequence, {.reason = v1::FINISH_REASON_LENGTH, .stop_match = {}, .stop_token = {}});
}

void Scheduler::Finish(SequenceId id, Sequence& sequence, const AnswerText::End& end) {
  Send(sequence);
  RememberAnswer(sequence);
  fleet::v1::DecodeEvent event;
  sequence.report.Retained(sequence.kv().leased_tokens());
  *event.mutable_finished() =
      sequence.report.Finished(sequence.choice, end, sequence.size() - sequence.prompt_tokens,
                               sequence.answer->tokens() - sequence.resumed_tokens - 1);
  if (auto steps = sequence.report.steps(); steps.has_value()) *event.mutable_steps() = *std::move(steps);
  if (const AnswerParts* const parts = sequence.answer->parts(); parts != nullptr) {
    AddPartsReport(*parts, event.mutable_finished());
    for (const output::Warning kind : output::kWarnings) {
      if (parts->warnings(kind) > 0) probe_.Warned(parts->format(), kind, parts->warnings(kind));
    }
  }
  sequence.send(std::move(event));
  sequence.finish(absl::OkStatus());
  End(id, Probe::Outcome::kOk);
}

void Scheduler::Fail(SequenceId id, Sequence& sequence, const absl::Status& status) {
  Send(sequence);
  sequence.finish(status);
  End(id, Probe::Outcome::kFailed, absl::StatusCodeToString(status.code()));
}

void Scheduler::Readmit() {
  for (auto& [id, sequence] : sequences_) {
    if (sequence->phase != Phase::kPreempted) continue;
    // A block for each running sequence stays free, or the next step would preempt again.
    const int64_t needed = BlocksFor(sequence->capacity());
    if (engine_.pool().available() < needed + static_cast<int64_t>(running())) break;
    if (!sequence->kv().Reserve(sequence->tokens, sequence->capacity()).ok()) break;
    StartPrefill(id, *sequence);
  }
}

void Scheduler::Pause() {
  const absl::Time now = clock_.Now();
  std::vector<SequenceId> stalled;
  for (auto& [id, sequence] : sequences_) {
    const bool congested = sequence->congested();
    if (congested && !sequence->paused) sequence->paused_since = now;
    sequence->paused = congested;
    if (congested && now - sequence->paused_since > options_.stall_patience) stalled.push_back(id);
  }
  for (SequenceId id : stalled) {
    Sequence& sequence = *sequences_.at(id);
    Fail(id, sequence,
         absl::ResourceExhaustedError(fmt::format(
             "the client took nothing for {} s and held {} KV blocks that others need: read faster",
             absl::ToDoubleSeconds(options_.stall_patience), sequence.kv().blocks().size())));
  }
}

void Scheduler::Preempt(Sequence& sequence) {
  leases_.Release(std::move(sequence.lease));
  sequence.lease.kv =
      std::make_unique<engine::SequenceKv>(engine_.pool(), sequence.chain, SharingOf(sequence));
  sequence.kv().Lease(sequence.leases, sequence.report.arrival());
  sequence.penalty_slot = nullptr;
  sequence.undrawn.clear();  // they are computed again
  if (sequence.model_drafter != nullptr) sequence.model_drafter->GiveBack();
  sequence.phase = Phase::kPreempted;
  sequence.report.Preempted();
  probe_.Preempted();
}

void Scheduler::Cancel(SequenceId id) { End(id, Probe::Outcome::kCancelled, "CANCELLED"); }

void Scheduler::Abort(const absl::Status& status) {
  if (in_flight_.has_value()) Complete(*std::exchange(in_flight_, std::nullopt));
  while (!sequences_.empty()) {
    Fail(sequences_.begin()->first, *sequences_.begin()->second, status);
  }
  leases_.ReleaseFinished();
}

void Scheduler::End(SequenceId id, Probe::Outcome outcome, std::string_view failure) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  std::unique_ptr<Sequence> sequence = std::move(found->second);
  sequences_.erase(found);
  if (sequence->grammar != nullptr) sequence->grammar->End();
  probe_.Ended(outcome, clock_.Now() - sequence->report.arrival());
  if (sequence->spans != nullptr) {
    sequence->report.AddSpans(failure, *sequence->spans);
    sequence->spans = nullptr;
  }
  BlockLease lease = std::move(sequence->lease);
  leases_.Release(std::move(lease), std::move(sequence));
}

}  // namespace baton::decode_service
