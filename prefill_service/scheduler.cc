#include "prefill_service/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/telemetry/semantic_conventions.h"
#include "engine/chunk_planner.h"
#include "transfer/fetch/peer_server.h"

namespace baton::prefill_service {
namespace {

// Sends chunks as events of the job's stream, whether the job is still there or not.
std::function<void(fleet::v1::KvChunk)> SendChunks(const Job& job) {
  return [send = job.send](fleet::v1::KvChunk chunk) {
    fleet::v1::PrefillEvent event;
    *event.mutable_chunk() = std::move(chunk);
    send(std::move(event));
  };
}

}  // namespace

int64_t DefaultStepTokens(std::string_view backend) { return backend == "cuda" ? 2048 : 512; }

Scheduler::Scheduler(const SchedulerOptions& options, engine::Engine& engine, transfer::LinkSender& link,
                     const Clock& clock, Probe& probe, const fetch::PeerFetch& peer_fetch)
    : options_(options),
      engine_(engine),
      link_(link),
      clock_(clock),
      probe_(probe),
      forecast_(options.step_cost.prefill()),
      peer_fetch_(peer_fetch) {
  BATON_CHECK(options_.chunk_tokens >= kBlockTokens);
  BATON_CHECK(options_.token_budget >= kBlockTokens);
}

Scheduler::~Scheduler() = default;

absl::Status Scheduler::Submit(JobId id, Job job) {
  if (!job.reusable.empty() && !options_.chunk_reuse) {
    return absl::FailedPreconditionError(
        "reusable: this prefill worker takes no reusable spans: start it with --chunk-reuse, or mark none");
  }
  int64_t needed = BlocksFor(static_cast<int64_t>(job.tokens.size()));
  for (const kv::ReusableSpan& span : job.reusable) needed += kv::CanonicalBlocks(span);
  if (const int64_t total = engine_.pool().counts().total; needed > total) {
    return absl::FailedPreconditionError(fmt::format(
        "prompt of {} tokens{} takes {} KV blocks, this prefill worker has {}: raise --kv-memory",
        job.tokens.size(), job.reusable.empty() ? "" : " with its reusable spans", needed, total));
  }
  if (queued_.size() >= options_.max_queued) {
    return absl::ResourceExhaustedError(fmt::format("{} prompts are queued already", queued_.size()));
  }
  Prompt prompt(id, std::move(job));
  if (!prompt.rule.spans().empty()) {
    prompt.reused = std::make_unique<engine::ReusedSpans>(engine_, prompt.rule, prompt.job.tokens);
  }
  prompt.arrival = clock_.Now();
  fleet::v1::PrefillEvent event;
  event.mutable_progress()->set_state(fleet::v1::PrefillProgress::STATE_QUEUED);
  event.mutable_progress()->set_queue_position(static_cast<uint32_t>(queued_.size()));
  prompt.job.send(std::move(event));
  prompt.chain = prompt.rule.Hashes(prompt.job.tokens);
  prompt.matched_blocks = engine_.pool().MatchPrefix(prompt.chain);
  prompt.due = DueTime(prompt);
  order_.Add(id, prompt.due);
  queued_.push_back(std::move(prompt));
  waiting_.emplace(id, std::prev(queued_.end()));
  BeginFetch(queued_.back());
  return absl::OkStatus();
}

forecast::VirtualDeadline Scheduler::DueTime(const Prompt& prompt) const {
  int64_t blocks = prompt.matched_blocks;
  if (prompt.prefetch != nullptr && !prompt.fetching_span.has_value()) {
    blocks = std::max(blocks, prompt.prefetch->target());
  }
  int64_t cached = blocks * kBlockTokens;
  if (prompt.reused != nullptr) cached += prompt.reused->CachedTokens(cached);
  cached = std::min(cached, prompt.size() - 1);
  return forecast::DeadlineOf(prompt.arrival, forecast_.Seconds(prompt.size() - cached, cached),
                              forecast::QueueTargets::For(targets_.ttft, targets_.tail_share),
                              prompt.job.priority);
}

void Scheduler::SetTargets(const forecast::LatencyTargets& targets) {
  targets_ = targets;
  for (Prompt& prompt : queued_) {
    prompt.due = DueTime(prompt);
    order_.Move(prompt.id, prompt.due);
  }
  const absl::Time now = clock_.Now();
  for (Prompt& prompt : computing_) prompt.due = {.due = DueTime(prompt).At(now)};
  computing_.sort([](const Prompt& a, const Prompt& b) { return a.due.due < b.due.due; });
}

void Scheduler::Reconsider() {
  if (!more_cached_) return;
  more_cached_ = false;
  for (Prompt& prompt : queued_) {
    const auto rest = std::span(prompt.chain).subspan(prompt.matched_blocks);
    const int64_t more = engine_.pool().MatchPrefix(rest);
    if (more == 0) continue;
    prompt.matched_blocks += more;
    prompt.due = DueTime(prompt);
    order_.Move(prompt.id, prompt.due);
  }
}

void Scheduler::Cancel(JobId id) {
  const auto is_it = [id](const Prompt& prompt) { return prompt.id == id; };
  order_.Remove(id);
  if (const auto waiting = waiting_.find(id); waiting != waiting_.end()) {
    const auto prompt = waiting->second;
    waiting_.erase(waiting);
    ReleasePrefetch(*prompt);
  }
  // The blocks go back with the prompt.
  if (std::erase_if(queued_, is_it) + std::erase_if(computing_, is_it) > 0) probe_.Cancelled();
}

void Scheduler::Abort(const absl::Status& status) {
  for (auto* list : {&queued_, &computing_}) {
    while (!list->empty()) {
      order_.Remove(list->front().id);
      waiting_.erase(list->front().id);
      ReleasePrefetch(list->front());
      list->front().job.finish(status);
      list->pop_front();
    }
  }
}

int64_t Scheduler::pending_tokens() const {
  int64_t tokens = 0;
  for (const auto* list : {&queued_, &computing_}) {
    for (const Prompt& prompt : *list) tokens += prompt.remaining();
  }
  return tokens;
}

bool Scheduler::Step() {
  std::erase_if(released_prefetches_, [](const auto& prefetch) { return !prefetch->writing(); });
  engine_.pool().Advance(clock_.Now());
  Admit();
  const bool landed = Land();
  const bool shipped = ShipCached();
  std::vector<Planned> plan = Plan();
  const bool computed = !plan.empty();
  if (computed) Compute(plan);
  Retire();
  probe_.Observe(queued_.size(), computing_.size(), pending_tokens(), engine_.pool().counts());
  // Without progress all prompts wait for a peer to take what was sent; its outbox wakes the loop.
  return landed || shipped || computed;
}

// One more if the next step has rows to spare, or if it is due before all that run: then it goes between
// their chunks.
bool Scheduler::WantsAnother(const Prompt& next) const {
  const absl::Time due = next.due.At(clock_.Now());
  int64_t rows = 0;
  bool first = true;
  for (const Prompt& prompt : computing_) {
    if (prompt.job.congested()) continue;
    rows += std::min(prompt.remaining(), options_.chunk_tokens);
    first = first && (prompt.remaining() == 0 || due < prompt.due.due);
  }
  return rows < options_.token_budget || first;
}

// Takes prompts off the queue while their blocks can be had. The first that can't holds back those behind it:
// short prompts don't starve a long one. Those whose blocks are on their way let others pass.
void Scheduler::Admit() {
  Reconsider();
  const absl::Time now = clock_.Now();
  order_.Advance(now);
  const size_t before = queued_.size();
  for (auto id = order_.First(); id.has_value();) {
    const auto next = waiting_.at(*id);
    Prompt& prompt = *next;
    if (prompt.prefetch != nullptr) {
      id = AwaitsBlocks(prompt) ? order_.After(*id) : order_.First();  // given up, it has another place
      continue;
    }
    if (!WantsAnother(prompt)) break;
    auto kv = std::make_unique<engine::SequenceKv>(engine_.pool(), prompt.rule);
    kv->Lease(prompt.job.leases, prompt.arrival);
    if (!kv->Reserve(prompt.job.tokens, prompt.size()).ok() ||
        (prompt.reused != nullptr && !prompt.reused->Reserve(kv->cached_tokens()).ok())) {
      kv = nullptr;
      if (MakeRoom()) continue;
      break;
    }
    if (prompt.prefetched_blocks > 0) {
      prompt.fetched_tokens =
          std::max<int64_t>(0, std::min(prompt.prefetched_blocks * kBlockTokens, kv->cached_tokens()) -
                                   prompt.matched_before_fetch * kBlockTokens);
    }
    prompt.kv = std::move(kv);
    prompt.started = now;
    prompt.due = {.due = prompt.due.At(now)};
    prompt.shipment = std::make_unique<transfer::Shipment>(prompt.job.ticket, link_, engine_.store(),
                                                           options_.max_chunk_bytes);
    // What lies before the ticket is on the other side already.
    prompt.cached_shipped = std::min(prompt.job.ticket.first_block, prompt.cached_blocks());
    if (prompt.reused != nullptr) {
      prompt.found_tokens = prompt.reused->FoundTokens(
          std::max(prompt.kv->cached_tokens(), prompt.job.ticket.first_block * kBlockTokens));
    }
    fleet::v1::PrefillEvent event;
    event.mutable_progress()->set_state(fleet::v1::PrefillProgress::STATE_COMPUTING);
    event.mutable_progress()->set_tokens_done(static_cast<uint32_t>(prompt.kv->cached_tokens()));
    event.mutable_progress()->set_cached_tokens(static_cast<uint32_t>(prompt.kv->cached_tokens()));
    prompt.job.send(std::move(event));
    probe_.Began(now - prompt.arrival, prompt.size(), prompt.cached_tokens());
    order_.Remove(*id);
    waiting_.erase(*id);
    const auto behind = std::find_if(computing_.begin(), computing_.end(),
                                     [&](const Prompt& other) { return prompt.due.due < other.due.due; });
    computing_.splice(behind, queued_, next);
    id = order_.First();
  }
  if (queued_.size() != before) ReportQueue();
}

// Waiting is not death: every prompt that waits is told its position.
void Scheduler::ReportQueue() {
  uint32_t position = 0;
  for (auto id = order_.First(); id.has_value(); id = order_.After(*id)) {
    fleet::v1::PrefillEvent event;
    event.mutable_progress()->set_state(fleet::v1::PrefillProgress::STATE_QUEUED);
    event.mutable_progress()->set_queue_position(position++);
    waiting_.at(*id)->job.send(std::move(event));
  }
}

bool Scheduler::ShipCached() {
  bool any = false;
  const int layers = engine_.store().layout().layers;
  const int64_t run = std::max<int64_t>(1, options_.max_chunk_bytes / engine_.store().layout().block_bytes());
  for (auto prompt = computing_.begin(); prompt != computing_.end();) {
    const auto current = prompt++;
    while (current->cached_shipped < current->cached_blocks() && !current->job.congested() &&
           !link_.congested()) {
      const int64_t count = current->shipment->Reserve(
          current->cached_shipped, std::min(run, current->cached_blocks() - current->cached_shipped), layers);
      if (count == 0) break;
      const absl::Status sent = current->shipment->Ship(current->kv->blocks(), current->cached_shipped, count,
                                                        0, layers, SendChunks(current->job));
      current->shipment->Unreserve();
      if (!sent.ok()) {
        Fail(current, sent);
        break;
      }
      current->cached_shipped += count;
      any = true;
    }
  }
  return any;
}

std::vector<Scheduler::Planned> Scheduler::Plan() {
  std::vector<Planned> plan;
  if (link_.congested()) return plan;  // what it computes could not leave
  engine::ChunkPlanner chunks(
      {.chunk_tokens = options_.chunk_tokens, .token_budget = options_.token_budget, .whole_blocks = true});
  for (auto prompt = computing_.begin(); prompt != computing_.end(); ++prompt) {
    if (prompt->remaining() == 0 || prompt->job.congested()) continue;
    if (prompt->reused != nullptr) {
      if (!PlanSpans(prompt, chunks, plan) || !PlanRuns(prompt, chunks, plan)) break;
      continue;
    }
    const int64_t first = prompt->kv->computed_tokens();
    int64_t rows = chunks.Take(first, prompt->remaining());
    if (rows == 0) break;
    // What the step computes can leave: a link whose memory is short gets fewer rows, of this prompt alone.
    const int64_t first_block = first / kBlockTokens, blocks = BlocksFor(first + rows) - first_block;
    const int64_t room = prompt->shipment->Reserve(first_block, blocks, 1);
    if (room < blocks) rows = (first_block + room) * kBlockTokens - first;
    if (rows <= 0) {
      prompt->shipment->Unreserve();
      continue;
    }
    plan.push_back({.prompt = prompt, .first = first, .rows = rows, .end = first + rows});
  }
  return plan;
}

void Scheduler::Compute(std::vector<Planned>& plan) {
  batch_.Clear();
  for (const Planned& planned : plan) {
    const Prompt& prompt = *planned.prompt;
    if (planned.span.has_value()) {
      batch_.Add(prompt.reused->RowsOf(*planned.span, planned.rows));
      continue;
    }
    batch_.Add({.tokens = std::span(prompt.job.tokens).subspan(planned.first, planned.rows),
                .first_position = planned.first,
                .blocks = prompt.kv->blocks(),
                .logit_rows = planned.first + planned.rows == prompt.size() ? 1 : 0});
  }
  std::vector<absl::Status> shipped(plan.size());
  const absl::Time begin = clock_.Now();
  const engine::StepResult result = engine_.Forward(batch_, [&](int layer) {
    // This layer leaves while the next is computed.
    for (size_t i = 0; i < plan.size(); ++i) {
      Prompt& prompt = *plan[i].prompt;
      if (!plan[i].end.has_value() || !shipped[i].ok()) continue;
      const int64_t first_block = prompt.kv->computed_tokens() / kBlockTokens;
      shipped[i] = prompt.shipment->Ship(prompt.kv->blocks(), first_block,
                                         CompleteBlocks(prompt, *plan[i].end) - first_block, layer, 1,
                                         SendChunks(prompt.job));
    }
  });
  const absl::Duration step = clock_.Now() - begin;
  probe_.Stepped(batch_.rows(), step);
  more_cached_ = true;
  for (size_t i = 0; i < plan.size(); ++i) {
    Prompt& prompt = *plan[i].prompt;
    prompt.compute_seconds +=
        absl::ToDoubleSeconds(step) * static_cast<double>(plan[i].rows) / static_cast<double>(batch_.rows());
    if (plan[i].span.has_value()) {
      prompt.reused->Computed(*plan[i].span, plan[i].rows);
    } else if (plan[i].end.has_value()) {
      prompt.shipment->Unreserve();
      prompt.kv->Computed(prompt.job.tokens, *plan[i].end);
    }
    const auto sequence = static_cast<int64_t>(i);
    if (!shipped[i].ok()) {
      Fail(plan[i].prompt, shipped[i]);
    } else if (result.logit_rows(sequence) > 0) {
      SendLogits(prompt, result.logits(sequence));
    } else if (plan[i].end.has_value() || plan[i].span.has_value()) {
      fleet::v1::PrefillEvent event;
      event.mutable_progress()->set_state(fleet::v1::PrefillProgress::STATE_COMPUTING);
      event.mutable_progress()->set_tokens_done(static_cast<uint32_t>(prompt.kv->computed_tokens()));
      event.mutable_progress()->set_cached_tokens(static_cast<uint32_t>(prompt.kv->cached_tokens()));
      prompt.job.send(std::move(event));
    }
  }
}

void Scheduler::SendLogits(Prompt& prompt, std::span<const float> logits) {
  const int64_t cached = prompt.cached_tokens();
  // With spans that land, time does not follow from these two.
  if (prompt.reused == nullptr) forecast_.Observe(prompt.size() - cached, cached, prompt.compute_seconds);
  fleet::v1::PrefillEvent event;
  fleet::v1::PrefillDone& done = *event.mutable_done();
  done.set_logits(logits.data(), logits.size_bytes());
  done.set_logits_crc32c(Crc32c(done.logits()));
  done.set_cached_tokens(static_cast<uint32_t>(cached));
  done.set_computed_tokens(static_cast<uint32_t>(prompt.size() - cached));
  if (prompt.fetched_tokens > 0) {
    done.set_fetched_tokens(static_cast<uint32_t>(prompt.fetched_tokens));
    done.set_fetch_seconds(prompt.fetch_seconds);
    done.set_fetched_from(prompt.fetched_from);
  }
  // Not the time from its first chunk to its last: what other prompts took in between is not its own cost,
  // and adding up the prompts that wait before another one would count it twice.
  const absl::Time now = clock_.Now();
  const double taken = absl::ToDoubleSeconds(now - prompt.arrival);
  done.set_queue_seconds(std::max(0.0, taken - prompt.compute_seconds));
  done.set_compute_seconds(prompt.compute_seconds);
  AddSpans(prompt, now);
  prompt.job.send(std::move(event));
  prompt.logits_sent = true;
}

void Scheduler::AddSpans(Prompt& prompt, absl::Time computed) const {
  namespace names = telemetry::names;
  if (prompt.job.spans == nullptr) return;
  telemetry::RequestSpans& spans = *prompt.job.spans;
  // As PrefillDone tells it: what other prompts took between its chunks was waiting.
  const absl::Time computed_from = std::max(prompt.arrival, computed - absl::Seconds(prompt.compute_seconds));
  spans.Add("prefill.queue", prompt.arrival, computed_from);
  spans.Add("prefill.compute", computed_from, computed).attributes = {
      {names::kTokens, prompt.size() - prompt.cached_tokens()}};
  if (prompt.fetched_tokens > 0) {
    const absl::Time fetched_from = prompt.last_prefetched - absl::Seconds(prompt.fetch_seconds);
    spans.Add("fetch", fetched_from, prompt.last_prefetched).attributes = {
        {names::kWorker, prompt.fetched_from}, {names::kTokens, prompt.fetched_tokens}};
  }
  spans.End(computed);
}

void Scheduler::Retire() {
  for (auto prompt = computing_.begin(); prompt != computing_.end();) {
    const auto current = prompt++;
    if (!current->logits_sent || current->cached_shipped < current->cached_blocks()) continue;
    probe_.Shipped(current->shipment->shipped_bytes());
    link_.WhenReady([finish = std::move(current->job.finish)] { finish(absl::OkStatus()); });
    computing_.erase(current);
  }
}

void Scheduler::Fail(std::list<Prompt>::iterator prompt, const absl::Status& status) {
  probe_.Failed();
  if (prompt->job.spans != nullptr) {
    prompt->job.spans->whole().error = absl::StatusCodeToString(status.code());
  }
  prompt->job.finish(status);
  computing_.erase(prompt);
}

}  // namespace baton::prefill_service
