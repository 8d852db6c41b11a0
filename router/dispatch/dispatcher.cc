#include "router/dispatch/dispatcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/rpc/status.h"
#include "router/dispatch/refusal_status.h"

namespace baton::router {

using admission::EntryId;

Dispatcher::Dispatcher(Options options, fleet::Fleet& fleet, std::unique_ptr<placement::Policy> policy,
                       const Clock& clock, Probe& probe, index::PrefixIndex* index)
    : options_(options),
      fleet_(fleet),
      clock_(clock),
      probe_(probe),
      index_(index),
      started_(clock.Now()),
      policy_name_(policy->name()),
      metrics_(probe, policy_name_),
      placer_(std::move(policy), options.default_ttft, fleet, index, this),
      admission_(options.limits,
                 options.meters != nullptr ? options.meters : std::make_shared<admission::Meters>(),
                 options.models != nullptr ? options.models : std::make_shared<admission::Meters>()) {
  SetTenant(admission::TenantId(0), "default", {});
  admission_.SetAbsent(true, started_);
  fleet_.SetListener([this] { Pump(); });
}

Dispatcher::~Dispatcher() {
  StopTicking();
  fleet_.SetListener(nullptr);  // bookings may outlive the dispatcher
}

void Dispatcher::StartTicking() {
  ticker_ = std::thread([this] { TickUntilStopped(); });
}

void Dispatcher::StopTicking() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (ticker_.joinable()) ticker_.join();
}

void Dispatcher::TickUntilStopped() {
  absl::Time shown = clock_.Now();
  bool served = false;
  while (true) {
    bool waiting;
    {
      absl::MutexLock lock(&mutex_);
      const auto needed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !admission_.queue().empty();
      };
      waiting = mutex_.AwaitWithTimeout(absl::Condition(&needed), kShow);
      if (waiting) {
        mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kTick);
        if (stopping_) return;
      }
      if (const absl::Time now = clock_.Now(); !waiting || now - shown >= kShow) {
        shown = now;
        ShowLimits();
        ShowAffinity();
        ShowLoad();
        Look(now);
      }
    }
    if (std::exchange(served, serves()) != served && serves_listener_) serves_listener_();
    if (waiting) Tick();
    MaintainIndex();
  }
}

void Dispatcher::SetTenant(admission::TenantId tenant, const std::string& label,
                           const admission::TenantLimits& limits) {
  absl::MutexLock lock(&mutex_);
  probe_.admission().Name(tenant, label);
  admission_.SetTenant(tenant, limits, clock_.Now());
  if (std::find(tenants_.begin(), tenants_.end(), tenant) == tenants_.end()) tenants_.push_back(tenant);
  Show(tenant);
  ShowLimits();
}

absl::StatusOr<std::vector<EntryId>> Dispatcher::Submit(std::shared_ptr<const DispatchRequest> request) {
  std::vector<EntryId> ids;
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    Look(now);
    // Nothing can be said of a wait for a worker, nor of what follows.
    const bool patient = presence_.waits();
    const admission::FirstToken first =
        patient ? admission::FirstToken{.due = request->deadline} : IfWaiting(*request, now);
    auto decided = admission_.Admit(*request, first, options_.max_wait, now);
    if (const auto* refusal = std::get_if<admission::Refusal>(&decided))
      return Refuse(request->tenant, *refusal);
    auto& admitted = std::get<admission::AdmissionController::Admitted>(decided);
    for (const EntryId id : admitted.displaced) {
      deliveries.push_back(
          Take(id, Refuse(waiting_.at(id).request->tenant,
                          {admission::Reason::kDisplaced,
                           "the admission queue is full, and this tenant waits with more than its share",
                           admission_.RetryDelay(waiting_.at(id).request->tenant)})));
    }
    ids = std::move(admitted.entries);
    const absl::Time expires = std::min(first.due - first.ttft, now + options_.max_wait);
    for (int choice = 0; choice < request->choices; ++choice) {
      waiting_.Add(ids[choice], {.request = request,
                                 .choice = choice,
                                 .avoid = {},
                                 .patient = patient,
                                 .came = now,
                                 .expires = expires,
                                 .ttft = first.ttft - first.queue});
    }
    probe_.admission().Admitted(request->tenant);
    Show(request->tenant);
    PumpLocked(now, &deliveries);
  }
  Deliver(std::move(deliveries));
  return ids;
}

absl::Status Dispatcher::AdmitCheapCall(admission::TenantId tenant) {
  absl::MutexLock lock(&mutex_);
  const auto refusal = admission_.AdmitCheapCall(tenant, clock_.Now());
  return refusal.has_value() ? Refuse(tenant, *refusal) : absl::OkStatus();
}

void Dispatcher::Settle(EntryId account, const admission::Meter::Use& used) {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    const admission::TenantId tenant = admission_.tenant(account);
    admission_.Settle(account, used, now);
    probe_.admission().Used(tenant, used);
    Show(tenant);
    // Its tenant may have waited for this.
    if (!admission_.queue().empty()) PumpLocked(now, &deliveries);
  }
  Deliver(std::move(deliveries));
}

void Dispatcher::Requeue(EntryId id, std::shared_ptr<const DispatchRequest> request, int choice,
                         std::vector<Incarnation> avoid, bool begun) {
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    const absl::Time due =
        begun ? request->deadline : placer_.core().deadlines().Due(request->deadline, request->arrival);
    const absl::Time expires = std::min(due, now + options_.max_wait);
    admission_.PutBack(id, expires, now);
    Show(request->tenant);
    waiting_.Add(id, {.request = std::move(request),
                      .choice = choice,
                      .avoid = std::move(avoid),
                      .begun = begun,
                      .came = now,
                      .expires = expires});
  }
  Pump();
}

void Dispatcher::Withdraw(EntryId id) {
  WaitingChoice dropped;  // its callback goes after the lock
  absl::MutexLock lock(&mutex_);
  if (!admission_.Withdraw(id, clock_.Now())) return;
  dropped = waiting_.Take(id);
  Show(dropped.request->tenant);
}

void Dispatcher::Pump() {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    if (admission_.queue().empty()) {
      Look(clock_.Now());
      return;
    }
    PumpLocked(clock_.Now(), &deliveries);
  }
  Deliver(std::move(deliveries));
}

void Dispatcher::TellWaiting(absl::Time now, std::vector<Telling>* tellings) {
  if (!waiting_.told() || now - told_ < kTell) return;
  told_ = now;
  for (const admission::Queue::Ahead& ahead : admission_.queue().WhatIsAhead()) {
    const WaitingChoice& waiting = waiting_.at(ahead.id);
    if (waiting.request->waits == nullptr) continue;
    Telling telling{.request = waiting.request,
                    .choice = waiting.choice,
                    .waiting = {.ahead = std::llround(ahead.entries)}};
    const auto until_turn = admission_.TimeToDrain(ahead.tokens);
    if (until_turn.has_value() && waiting.ttft > absl::ZeroDuration()) {
      telling.waiting.left = *until_turn + waiting.ttft;
    }
    tellings->push_back(std::move(telling));
  }
}

void Dispatcher::Tick() {
  std::vector<Delivery> deliveries;
  std::vector<Telling> tellings;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    Look(now);
    std::optional<absl::Status> told;
    for (const EntryId id : admission_.TakeExpired(now)) {
      if (presence_.waits() && waiting_.WaitOn(id, now, options_.max_wait)) {
        admission_.WaitOn(id, waiting_.at(id).expires);
        continue;
      }
      const bool nobody = !presence_.up() && waiting_.at(id).request->deadline > now;
      deliveries.push_back(Take(id, nobody ? NoDecodeWorker(&told) : Expired(waiting_.at(id), now)));
    }
    PumpLocked(now, &deliveries);
    TellWaiting(now, &tellings);
  }
  Deliver(std::move(deliveries));
  for (const Telling& telling : tellings) telling.request->waits(telling.choice, telling.waiting);
}

void Dispatcher::MaintainIndex() {
  if (index_ == nullptr) return;
  constexpr int kMaxPieces = 64;  // a bounded piece of work each, some milliseconds in all
  for (int i = 0; i < kMaxPieces && index_->Maintain(clock_.Now()); ++i) {
  }
  probe_.Index(index_->stats());
}

admission::FirstToken Dispatcher::IfWaiting(const DispatchRequest& request, absl::Time now) {
  admission::FirstToken unplaced = placer_.Unplaced(request);
  if (unplaced.due == absl::InfiniteFuture() || !placer_.core().deadlines().trusted()) return unplaced;
  const std::shared_ptr<const fleet::View> view = fleet_.view();
  const bool goes_at_once =
      admission_.queue().empty() && std::any_of(view->decode.begin(), view->decode.end(),
                                                [&](const auto& worker) { return Takes(*worker, now); });
  if (goes_at_once || view->decode.empty() || !Placer::Busy(*view)) return unplaced;
  return placer_.IfPlaced(request, *view, now);
}

std::shared_ptr<const fleet::View> Dispatcher::Look(absl::Time now) {
  std::shared_ptr<const fleet::View> view = fleet_.view();
  DecodePresence::Seen seen;
  if (view->decode.empty()) {
    seen.expected = fleet_.decode_expected();
    seen.settling = now - started_ < options_.settle_patience && !fleet_.settled();
    view = fleet_.view();  // again: it has the worker that has come since
  }
  seen.up = !view->decode.empty();
  if (presence_.Observe(seen, now)) {
    admission_.SetAbsent(!seen.up, now);
    if (!seen.up) {
      spdlog::warn("{}; requests wait for one, for up to {}", std::string(fleet_.NoDecodeWorker().message()),
                   absl::FormatDuration(options_.max_wait));
    }
  }
  serves_.store(presence_.serves(), std::memory_order_relaxed);
  return view;
}

absl::Status Dispatcher::NoDecodeWorker(std::optional<absl::Status>* told) {
  if (!told->has_value()) *told = fleet_.TellNoDecodeWorker();
  return **told;
}

bool Dispatcher::Takes(const fleet::Worker& worker, absl::Time now, bool in_time) const {
  if (!worker.heard() || !worker.breaker().Allows(now)) return false;
  if (worker.BookedRequests() >= options_.worker_concurrency) return false;
  const std::optional<int64_t> answers = worker.AnswersInTime();
  return !in_time || !answers.has_value() ||
         placer_.core().batch_bound().Allows(*answers, worker.ReportedRunning(), worker.Requests());
}

absl::Status Dispatcher::Expired(const WaitingChoice& waiting, absl::Time now) {
  if (waiting.request->deadline <= now) {
    return absl::DeadlineExceededError("the deadline passed while the request waited for a decode worker");
  }
  return Refuse(waiting.request->tenant, WhyExpired(waiting, now, options_.max_wait, options_.default_ttft,
                                                    admission_.RetryDelay(waiting.request->tenant)));
}

absl::Status Dispatcher::Refuse(admission::TenantId tenant, const admission::Refusal& refusal) {
  probe_.admission().Refused(tenant, refusal.reason);
  return StatusOf(refusal);
}

void Dispatcher::Show(admission::TenantId tenant) {
  const admission::Queue& queue = admission_.queue();
  probe_.Queued(queue.size(), queue.bytes());
  shown_waiting_.store(queue.size(), std::memory_order_relaxed);
  probe_.admission().Depth(tenant, queue.depth(tenant), admission_.running(tenant));
}

void Dispatcher::ShowLimits() {
  const absl::Time now = clock_.Now();
  for (const admission::TenantId tenant : tenants_)
    probe_.admission().Left(tenant, admission_.LeftOver(tenant, now));
}

void Dispatcher::ShowAffinity() {
  probe_.HotPrefixes(placer_.hot().Top(Probe::kHotPrefixes, clock_.Now()));
  metrics_.Show(*fleet_.view());
}

void Dispatcher::ShowLoad() {
  FleetLoad load;
  load.waiting = admission_.queue().size();
  const std::shared_ptr<const fleet::View> view = fleet_.view();
  for (const auto& worker : view->decode) {
    load.waiting += worker->ReportedQueued();
    load.running += worker->ReportedRunning();
    load.held_blocks +=
        std::max<int64_t>(0, worker->TotalBlocks() - worker->FreeBlocks() - worker->CachedBlocks());
    load.total_blocks += worker->TotalBlocks();
  }
  probe_.Load(load);
}

Dispatcher::Delivery Dispatcher::Take(EntryId id, absl::StatusOr<Placer::Placed> result) {
  Delivery delivery{.waiting = waiting_.Take(id), .result = std::move(result)};
  Show(delivery.waiting.request->tenant);
  return delivery;
}

void Dispatcher::PlacePressing(const fleet::View& view, absl::Time now, std::vector<Delivery>* deliveries) {
  for (const EntryId id : waiting_.Pressing(now)) {
    std::vector<std::shared_ptr<fleet::Worker>> open;
    std::copy_if(view.decode.begin(), view.decode.end(), std::back_inserter(open),
                 [&](const auto& worker) { return Takes(*worker, now, /*in_time=*/false); });
    if (open.empty()) return;
    if (!admission_.Overtake(id, now)) continue;
    const WaitingChoice& waiting = waiting_.at(id);
    auto result = TryPlace(waiting, view, open, now);
    if (!result.has_value()) {
      admission_.PutBack(id, waiting.expires, now);
      continue;
    }
    if (result->ok()) {
      probe_.admission().Waited(waiting.request->tenant, now - waiting.came);
    } else {
      admission_.PutBack(id, waiting.expires, now);
      admission_.Withdraw(id, now);
    }
    deliveries->push_back(Take(id, *std::move(result)));
  }
}

void Dispatcher::PumpLocked(absl::Time now, std::vector<Delivery>* deliveries) {
  const std::shared_ptr<const fleet::View> view = Look(now);
  const auto takes = [&](const std::shared_ptr<fleet::Worker>& worker) { return Takes(*worker, now); };
  std::vector<std::shared_ptr<fleet::Worker>> some;
  placement::Policy& policy = placer_.core().policy();
  const admission::TtftDeadlines& deadlines = placer_.core().deadlines();
  for (const fleet::Fleet::Move& move : fleet_.TakeMoves()) {
    if (move.arrived) {
      policy.OnWorkerBack(move.slot, move.incarnation);
      if (move.step_cost.has_value()) policy.Introduce(move.slot, *move.step_cost);
    } else {
      policy.OnWorkerLeft(move.slot, move.incarnation);
      policy.OnSlotFreed(move.slot);
    }
  }
  if (deadlines.trusted()) PlacePressing(*view, now, deliveries);
  std::optional<absl::Status> told;
  std::vector<EntryId> passed_over;  // those that none of the open workers can take
  while (const std::optional<EntryId> id = admission_.First()) {
    if (view->decode.empty()) {
      if (presence_.waits()) break;
      admission_.Withdraw(*id, now);
      deliveries->push_back(Take(*id, NoDecodeWorker(&told)));
      continue;
    }
    if (!deadlines.trusted()) {
      int64_t unanswered = 0;
      for (const auto* pool : {&view->decode, &view->prefill}) {
        for (const auto& worker : *pool) unanswered += worker->PromptsBooked();
      }
      if (!deadlines.MayDispatchUntried(unanswered, std::ssize(view->decode))) break;
    }
    WorkerSpan open = view->decode;
    if (!std::all_of(open.begin(), open.end(), takes)) {
      some.clear();
      std::copy_if(open.begin(), open.end(), std::back_inserter(some), takes);
      open = some;
      if (open.empty()) break;
    }
    const WaitingChoice& waiting = waiting_.at(*id);
    auto result = TryPlace(waiting, *view, open, now);
    if (result.has_value() && !result->ok()) {
      admission_.Withdraw(*id, now);
    } else {
      admission_.Serve(*id, now);
    }
    if (!result.has_value()) {
      passed_over.push_back(*id);
      continue;
    }
    if (result->ok()) probe_.admission().Waited(waiting.request->tenant, now - waiting.came);
    deliveries->push_back(Take(*id, *std::move(result)));
  }
  for (const EntryId id : passed_over) admission_.PutBack(id, waiting_.at(id).expires, now);
}

std::optional<absl::StatusOr<Placer::Placed>> Dispatcher::TryPlace(const WaitingChoice& waiting,
                                                                   const fleet::View& view, WorkerSpan open,
                                                                   absl::Time now) {
  const DispatchRequest& request = *waiting.request;
  std::vector<std::shared_ptr<fleet::Worker>> some;
  const absl::StatusOr<WorkerSpan> fit = FitFor(request, waiting.avoid, view.decode, open, &some);
  if (!fit.ok()) return fit.status();
  if (fit->empty()) return std::nullopt;
  auto decided = placer_.Place(request, /*in_time=*/!waiting.begun && !waiting.patient, view, *fit, now);
  if (const auto* const late = std::get_if<admission::FirstToken>(&decided)) {
    return Refuse(request.tenant, admission::AdmissionController::TooLate(
                                      request.has_deadline(), late->due - now, absl::ZeroDuration(), *late));
  }
  Placer::Placed& placed = std::get<Placer::Placed>(decided);
  metrics_.Placed(placed.placement);
  return std::move(placed);
}

void Dispatcher::OnFirstToken(const Placement& placement, absl::Duration took) {
  const placement::Selection& selection = placement.selection;
  bool may_wait = false;
  {
    absl::MutexLock lock(&mutex_);
    DispatchCore& core = placer_.core();
    may_wait = !core.deadlines().trusted();
    core.deadlines().Observe(selection.predicted.ttft(), absl::ToDoubleSeconds(took), selection.trusted);
    core.batch_bound().ObserveFirstToken(absl::ToDoubleSeconds(took));
  }
  if (may_wait) Pump();
}

void Dispatcher::OnFinished(const Placement& placement, v1::Finished* finished,
                            const baton::fleet::v1::StepMeans& steps) {
  metrics_.Finished(placement, *finished);
  if (placement.debug) placement.Explain(policy_name_, finished->mutable_placement());
  if (finished->relay().migrations() > 0) return;  // its times are two workers'
  const std::optional<placement::Outcome> outcome = placement.OutcomeOf(*finished, steps);
  if (!outcome.has_value()) return;
  absl::MutexLock lock(&mutex_);
  placer_.core().policy().Observe(*outcome);
  if (finished->timing().has_tpot_seconds()) {
    const uint32_t tokens = std::max(1u, finished->usage().completion_tokens());
    placer_.core().batch_bound().ObserveAnswer(finished->timing().tpot_seconds() * (tokens - 1));
  }
}

void Dispatcher::Deliver(std::vector<Delivery> deliveries) {
  for (auto& [waiting, result] : deliveries) {
    const std::shared_ptr<const DispatchRequest> request = waiting.request;
    if (!result.ok()) {
      request->result(waiting.choice, result.status());
      continue;
    }
    request->result(waiting.choice, std::move(result->placement));
    for (const SpeculativeRun& run : result->speculative) {
      index_->Speculate(run.slot, std::span(request->chain).subspan(run.from), run.until);
    }
  }
}

}  // namespace baton::router
