#include "decode_service/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/fetch/holder.h"
#include "common/rpc/status.h"
#include "common/transfer/prompt_checksum.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace baton::decode_service {
namespace {

using Phase = Sequence::Phase;

// A full worker frees a block at the pace of its running sequences: ask again soon.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(200);

// The phases that lie between the router's call and the logits of the first token.
void ReportPhases(const Sequence& sequence, v1::Timing& timing) {
  timing.set_decode_queue(absl::ToDoubleSeconds(sequence.times.reserved - sequence.times.arrival));
  timing.set_prefill_queue(sequence.times.prefill_queue);
  timing.set_prefill(sequence.times.prefill);
  timing.set_transfer(sequence.times.transfer);
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, engine::Engine& engine, transfer::LinkReceiver& link,
                     PrefillClient& prefill, const Clock& clock, Probe& probe,
                     const fetch::Exchange& exchange)
    : options_(options),
      engine_(engine),
      link_(link),
      prefill_(prefill),
      clock_(clock),
      probe_(probe),
      exchange_(exchange),
      forecast_(options.step_cost) {
  BATON_CHECK(options_.chunk_tokens >= kBlockTokens && options_.token_budget >= kBlockTokens);
}

Scheduler::~Scheduler() {
  if (flight_.has_value()) engine_.Finish();
}

size_t Scheduler::running() const {
  return std::count_if(sequences_.begin(), sequences_.end(),
                       [](const auto& entry) { return entry.second->phase == Phase::kRunning; });
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
  sequence.times.arrival = clock_.Now();
  const int64_t total = engine_.pool().counts().total;
  const int64_t most = BlocksFor(sequence.prompt_tokens + sequence.max_tokens);
  if (most > total) {
    return absl::FailedPreconditionError(
        fmt::format("prompt of {} and max_tokens of {} take {} KV blocks, decode worker {} has {}: raise its "
                    "--kv-memory or "
                    "lower max_tokens",
                    sequence.prompt_tokens, sequence.max_tokens, most, options_.worker_id, total));
  }
  if (sequences_.size() >= options_.max_sequences) {
    return rpc::WithRetryDelay(
        absl::ResourceExhaustedError(fmt::format("decode worker {} runs {} sequences, as many as it may",
                                                 options_.worker_id, sequences_.size())),
        kRetryDelay);
  }
  sequence.usage.set_prompt_tokens(static_cast<uint32_t>(sequence.prompt_tokens));
  sequence.relay.set_decode_worker(options_.worker_id);
  if (sequence.pending_end.has_value()) {  // nothing is left to compute
    sequence.times.reserved = sequence.times.arrival;
    probe_.Admitted(0, 0);
    sequences_.emplace(id, std::move(owned));
    v1::DecodeEvent event;
    event.mutable_accepted();
    sequence.send(std::move(event));
    Finish(id, sequence, *sequence.pending_end);
    return absl::OkStatus();
  }
  const bool queue = std::any_of(sequences_.begin(), sequences_.end(),
                                 [](const auto& entry) { return entry.second->phase == Phase::kPreempted; });
  const auto reserve = [&] { return sequence.kv->Reserve(sequence.tokens, sequence.size() + 1).ok(); };
  // Those who were set aside come first, peers last.
  if (queue || !(reserve() || (exchange_.holder != nullptr && exchange_.holder->MakeRoom() && reserve()))) {
    return rpc::WithRetryDelay(
        absl::ResourceExhaustedError(fmt::format(
            "decode worker {} has no KV blocks for a prompt of {} tokens now: {} of {} can be had",
            options_.worker_id, sequence.size(), engine_.pool().available(), total)),
        kRetryDelay);
  }
  sequence.times.reserved = clock_.Now();
  sequence.usage.set_decode_cached_tokens(
      static_cast<uint32_t>(std::min(sequence.kv->cached_tokens(), sequence.prompt_tokens)));
  probe_.Admitted(sequence.size(), sequence.kv->cached_tokens());
  sequences_.emplace(id, std::move(owned));
  if (!StartFetch(id, sequence)) StartPrefill(id, sequence);
  v1::DecodeEvent event;
  v1::Accepted& accepted = *event.mutable_accepted();
  accepted.set_cached_tokens(static_cast<uint32_t>(sequence.kv->cached_tokens()));
  accepted.set_reserved_blocks(static_cast<uint32_t>(sequence.kv->blocks().size()));
  accepted.set_local_prefill(sequence.phase != Phase::kHandoff);
  sequence.send(std::move(event));
  return absl::OkStatus();
}

void Scheduler::StartPrefill(SequenceId id, Sequence& sequence) {
  if (sequence.next_target >= sequence.targets.size() ||
      sequence.remaining() <= options_.local_prefill_tokens) {
    sequence.phase = Phase::kPrefilling;
    return;
  }
  const v1::PrefillTarget& target = sequence.targets[sequence.next_target];
  transfer::Ticket ticket{
      options_.incarnation, TicketId(next_ticket_++), sequence.kv->computed_tokens() / kBlockTokens, {}};
  for (int64_t block = ticket.first_block; block < BlocksFor(sequence.size()); ++block) {
    ticket.generations.push_back(engine_.pool().generation(sequence.kv->blocks()[block]));
  }
  v1::PrefillRequest request;
  request.set_request_id(sequence.request_id);
  *request.mutable_fingerprint() = sequence.fingerprint;
  request.mutable_fingerprint()->set_link(std::string(link_.name()));
  request.mutable_token_ids()->Reserve(static_cast<int>(sequence.size()));
  for (TokenId token : sequence.tokens) request.add_token_ids(token.value());
  request.set_salt(sequence.salt);
  request.set_prompt_crc32c(transfer::PromptChecksum(request));
  request.set_priority(sequence.priority);
  if (target.fetch().address() != target.address()) *request.mutable_fetch() = target.fetch();
  sequence.phase = Phase::kHandoff;
  sequence.handoff_tokens = sequence.size();
  if (sequence.times.prefill_started == absl::Time()) sequence.times.prefill_started = clock_.Now();
  sequence.handoff = std::make_unique<Handoff>(
      target.worker(), std::move(ticket), sequence.kv->blocks(), engine_.store(), link_,
      engine_.config().vocabulary,
      Handoff::Callbacks{.logits = [this, id](std::span<const float> logits,
                                              const v1::PrefillDone& done) { OnLogits(id, logits, done); },
                         .ended = [this, id](absl::Status status) { OnHandoffEnded(id, status); }});
  sequence.handoff->Start(prefill_, target.address(), std::move(request), sequence.deadline);
}

void Scheduler::OnLogits(SequenceId id, std::span<const float> logits, const v1::PrefillDone& done) {
  Sequence& sequence = *sequences_.at(id);
  if (sequence.times.first_token == absl::Time()) {
    const absl::Duration taken = clock_.Now() - sequence.times.prefill_started;
    sequence.times.prefill_queue = sequence.times.fetch + done.queue_seconds();
    sequence.times.prefill = done.compute_seconds();
    // What neither waiting nor computing explains: shipping, the wire, and attempts that failed before.
    sequence.times.transfer =
        std::max(0.0, absl::ToDoubleSeconds(taken) - done.queue_seconds() - done.compute_seconds());
    sequence.usage.set_prefill_cached_tokens(
        std::max<int64_t>(0, int64_t{done.cached_tokens()} - sequence.usage.decode_cached_tokens()));
    if (done.fetched_tokens() > 0) {
      sequence.relay.set_fetched_tokens(sequence.relay.fetched_tokens() + done.fetched_tokens());
      sequence.relay.set_fetched_from(done.fetched_from());
      sequence.relay.set_fetch_seconds(done.fetch_seconds());
    }
  }
  SampleAndEmit(id, sequence, logits);
}

void Scheduler::OnHandoffEnded(SequenceId id, const absl::Status& status) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence& sequence = *found->second;
  const transfer::Intake& intake = sequence.handoff->intake();
  sequence.relay.set_shipped_blocks(sequence.relay.shipped_blocks() +
                                    static_cast<uint32_t>(intake.received_blocks()));
  sequence.relay.set_shipped_bytes(sequence.relay.shipped_bytes() + intake.received_bytes());
  if (intake.received_blocks() > 0) sequence.relay.set_link(std::string(link_.name()));
  int64_t computed = intake.committed_blocks() * kBlockTokens;
  const Handoff& handoff = *sequence.handoff;
  // We are in its callback.
  leaving_.push_back(
      {.sequence = nullptr, .handoff = std::move(sequence.handoff), .fetch = nullptr, .kv = nullptr});
  if (status.ok()) {
    sequence.relay.set_prefill_worker(handoff.worker());
    probe_.HandedOff(intake.received_blocks(), intake.received_bytes(),
                     absl::Seconds(sequence.times.transfer));
    sequence.kv->Computed(sequence.tokens, sequence.handoff_tokens);
    sequence.phase = Phase::kRunning;
    if (sequence.pending_end.has_value()) Finish(id, sequence, *sequence.pending_end);
    return;
  }
  probe_.HandOffFailed();
  if (handoff.refused_write()) probe_.LateWriteRefused();
  spdlog::warn("request {}: hand-off from {} failed with {} of {} blocks committed: {}", sequence.request_id,
               handoff.worker(), intake.received_blocks(), intake.ticket().blocks(), status.ToString());
  // The committed blocks are a valid prefix. The block of the last token is computed again, for its logits.
  computed = std::min(computed, (sequence.handoff_tokens - 1) / kBlockTokens * kBlockTokens);
  if (computed > sequence.kv->computed_tokens()) sequence.kv->Computed(sequence.tokens, computed);
  sequence.relay.set_failovers(sequence.relay.failovers() + 1);
  ++sequence.next_target;
  if (sequence.pending_end.has_value()) {
    Finish(id, sequence, *sequence.pending_end);
    return;
  }
  if (!GrowKv(sequence, sequence.size() + 1).ok()) {
    Preempt(sequence);
    return;
  }
  StartPrefill(id, sequence);
}

void Scheduler::SampleAndEmit(SequenceId id, Sequence& sequence, std::span<const float> logits) {
  const absl::StatusOr<sampling::Draw> draw =
      sampler_.Sample(logits, sequence.sampling, sequence.history, static_cast<uint64_t>(sequence.size()),
                      sequence.outbox->logprobs());
  if (!draw.ok()) {  // no logit is a number: this request ends, not the worker
    Fail(id, sequence, draw.status());
    return;
  }
  Emit(id, sequence, *draw, sequence.outbox->shows_logits() ? Crc32c(std::as_bytes(logits)) : 0);
}

void Scheduler::Emit(SequenceId id, Sequence& sequence, const sampling::Draw& draw, uint32_t logits_digest) {
  sequence.history.AddOutput(draw.token);
  sequence.tokens.push_back(draw.token);
  v1::DecodeEvent event;
  const auto end = sequence.outbox->Push(draw, logits_digest, *event.mutable_delta());
  if (sequence.times.first_token == absl::Time() && sequence.resumed_tokens == 0) {
    ReportPhases(sequence, *event.mutable_opening()->mutable_timing());
    *event.mutable_opening()->mutable_usage() = sequence.usage;
  }
  sequence.send(std::move(event));
  const absl::Time sent = clock_.Now();
  if (sequence.times.first_token == absl::Time()) {
    sequence.times.first_token = sent;
    probe_.FirstToken(sent - sequence.times.arrival);
  } else {
    probe_.NextToken(sent - sequence.times.last_token);
  }
  sequence.times.last_token = sent;
  if (!end.has_value()) return;
  if (sequence.phase == Phase::kHandoff) {
    sequence.pending_end = end;
  } else {
    Finish(id, sequence, *end);
  }
}

void Scheduler::Finish(SequenceId id, Sequence& sequence, const Outbox::End& end) {
  v1::DecodeEvent event;
  v1::Finished& finished = *event.mutable_finished();
  finished.set_choice(sequence.choice);
  finished.set_reason(end.reason);
  finished.set_stop_match(end.stop_match);
  if (end.stop_token.has_value()) finished.set_stop_token_id(end.stop_token->value());
  const int64_t generated = sequence.size() - sequence.prompt_tokens;
  sequence.usage.set_completion_tokens(static_cast<uint32_t>(generated));
  *finished.mutable_usage() = sequence.usage;
  if (sequence.relay.link().empty()) sequence.relay.set_link("local");
  *finished.mutable_relay() = sequence.relay;
  const auto& times = sequence.times;
  v1::Timing& timing = *finished.mutable_timing();
  ReportPhases(sequence, timing);
  if (times.first_token != absl::Time()) {  // a token was drawn here
    const double ttft = absl::ToDoubleSeconds(times.first_token - times.arrival);
    timing.set_first_token(std::max(
        0.0, ttft - timing.decode_queue() - timing.prefill_queue() - timing.prefill() - timing.transfer()));
    timing.set_ttft(ttft);
    const int64_t steps = sequence.outbox->tokens() - sequence.resumed_tokens - 1;
    if (steps > 0) {
      timing.set_tpot(absl::ToDoubleSeconds(times.last_token - times.first_token) /
                      static_cast<double>(steps));
    }
    timing.set_e2e(absl::ToDoubleSeconds(times.last_token - times.arrival));
  }
  sequence.send(std::move(event));
  sequence.finish(absl::OkStatus());
  End(id, Probe::Outcome::kOk);
}

void Scheduler::Fail(SequenceId id, Sequence& sequence, const absl::Status& status) {
  sequence.finish(status);
  End(id, Probe::Outcome::kFailed);
}

void Scheduler::Readmit() {
  for (auto& [id, sequence] : sequences_) {
    if (sequence->phase != Phase::kPreempted) continue;
    // A block for each running sequence stays free, or the next step would preempt again.
    const int64_t needed = BlocksFor(sequence->size() + 1);
    if (engine_.pool().available() < needed + static_cast<int64_t>(running())) break;
    if (!sequence->kv->Reserve(sequence->tokens, sequence->size() + 1).ok()) break;
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
             absl::ToDoubleSeconds(options_.stall_patience), sequence.kv->blocks().size())));
  }
}

void Scheduler::Preempt(Sequence& sequence) {
  LetGo(nullptr, std::move(sequence.handoff), std::move(sequence.fetch), std::move(sequence.kv));
  sequence.kv =
      std::make_unique<engine::SequenceKv>(engine_.pool(), engine_.RootFor(kv::TenantSalt(sequence.salt)));
  sequence.penalty_slot = nullptr;
  sequence.phase = Phase::kPreempted;
  sequence.relay.set_preemptions(sequence.relay.preemptions() + 1);
  probe_.Preempted();
}

void Scheduler::Cancel(SequenceId id) { End(id, Probe::Outcome::kCancelled); }

void Scheduler::Abort(const absl::Status& status) {
  if (flight_.has_value()) Land(*std::exchange(flight_, std::nullopt));
  while (!sequences_.empty()) {
    Fail(sequences_.begin()->first, *sequences_.begin()->second, status);
  }
  Sweep();
}

void Scheduler::End(SequenceId id, Probe::Outcome outcome) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  std::unique_ptr<Sequence> sequence = std::move(found->second);
  sequences_.erase(found);
  probe_.Ended(outcome, clock_.Now() - sequence->times.arrival);
  auto handoff = std::move(sequence->handoff);
  auto fetch = std::move(sequence->fetch);
  auto kv = std::move(sequence->kv);
  LetGo(std::move(sequence), std::move(handoff), std::move(fetch), std::move(kv));
}

void Scheduler::LetGo(std::unique_ptr<Sequence> sequence, std::unique_ptr<Handoff> handoff,
                      std::unique_ptr<fetch::Fetch> fetch, std::unique_ptr<engine::SequenceKv> kv) {
  Leaving leaving{std::move(sequence), std::move(handoff), std::move(fetch), std::move(kv), launched_};
  if (leaving.handoff != nullptr) leaving.handoff->Release();
  if (leaving.fetch != nullptr) leaving.fetch->Release();
  // Writes end before the blocks go back.
  if (!Writing(leaving)) leaving.kv->Release();
  leaving_.push_back(std::move(leaving));
}

void Scheduler::Sweep() {
  std::erase_if(leaving_, [this](const Leaving& leaving) { return !Writing(leaving); });
}

bool Scheduler::Writing(const Leaving& leaving) const {
  return (leaving.handoff != nullptr && leaving.handoff->writing()) ||
         (leaving.fetch != nullptr && leaving.fetch->writing()) || landed_ < leaving.launched;
}

}  // namespace baton::decode_service
