#include "router/dispatch/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/rpc/status.h"
#include "router/dispatch/decision.h"
#include "router/dispatch/worker_states.h"

namespace baton::router {

using admission::EntryId;

// Blocks that the index is told of at once, for the next request of a burst; the rest follow when the lock is
// released.
constexpr size_t kBelievedAtOnce = 256;

Dispatcher::Dispatcher(Options options, fleet::Fleet* fleet, std::unique_ptr<placement::Policy> policy,
                       const Clock* clock, Probe* probe, index::PrefixIndex* index)
    : options_(options),
      fleet_(fleet),
      clock_(clock),
      probe_(probe),
      index_(index),
      started_(clock->Now()),
      policy_name_(policy->name()),
      policy_(std::move(policy)),
      admission_(options.limits),
      foresight_(options.default_ttft) {
  for (size_t i = 0; i < placements_.size(); ++i) {
    const auto reason = placement::ReasonName(static_cast<placement::Reason>(i));
    placements_[i] = &probe_->Placements(policy_name_, std::string(reason));
  }
  SetTenant(admission::TenantId(0), "default", {});
  fleet_->SetListener([this] { Pump(); });
}

Dispatcher::~Dispatcher() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (ticker_.joinable()) ticker_.join();
  fleet_->SetListener(nullptr);  // bookings may outlive the dispatcher
}

void Dispatcher::StartTicking() {
  ticker_ = std::thread([this] { TickUntilStopped(); });
}

void Dispatcher::TickUntilStopped() {
  absl::Time shown = clock_->Now();
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
      if (const absl::Time now = clock_->Now(); !waiting || now - shown >= kShow) {
        shown = now;
        ShowLimits();
        ShowAffinity();
      }
    }
    if (waiting) Tick();
    MaintainIndex();
  }
}

void Dispatcher::SetTenant(admission::TenantId tenant, const std::string& label,
                           const admission::TenantLimits& limits) {
  absl::MutexLock lock(&mutex_);
  probe_->admission().Name(tenant, label);
  admission_.SetTenant(tenant, limits, clock_->Now());
  if (std::find(tenants_.begin(), tenants_.end(), tenant) == tenants_.end()) tenants_.push_back(tenant);
  Show(tenant);
  ShowLimits();
}

absl::StatusOr<std::vector<EntryId>> Dispatcher::Submit(std::shared_ptr<const Ask> ask) {
  std::vector<EntryId> ids;
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    const Outlook outlook = OutlookOfWaiting(*ask, now);
    auto decided = admission_.Admit({.tenant = ask->tenant,
                                     .choices = ask->choices,
                                     .prompt_tokens = ask->request.prompt_tokens,
                                     .max_tokens = ask->request.max_tokens,
                                     .bytes = ask->bytes,
                                     .priority = ask->priority,
                                     .deadline = outlook.due,
                                     .clients_deadline = ask->deadline != absl::InfiniteFuture(),
                                     .patience = options_.max_wait,
                                     .predicted = outlook.predicted},
                                    now);
    if (const auto* refusal = std::get_if<admission::Refusal>(&decided)) return Refuse(ask->tenant, *refusal);
    auto& admitted = std::get<admission::AdmissionController::Admitted>(decided);
    for (const EntryId id : admitted.displaced) {
      deliveries.push_back(
          Take(id, Refuse(waiting_.at(id).ask->tenant,
                          {admission::Reason::kDisplaced,
                           "the admission queue is full, and this tenant waits with more than its share",
                           admission_.RetryDelay(waiting_.at(id).ask->tenant)})));
    }
    ids = std::move(admitted.entries);
    const absl::Time expires = std::min(outlook.due - outlook.predicted.ttft, now + options_.max_wait);
    for (int choice = 0; choice < ask->choices; ++choice) {
      waiting_.emplace(ids[choice],
                       Waiting{.ask = ask, .choice = choice, .avoid = {}, .came = now, .expires = expires});
    }
    probe_->admission().Admitted(ask->tenant);
    Show(ask->tenant);
    PumpLocked(now, &deliveries);
  }
  Deliver(std::move(deliveries));
  return ids;
}

absl::Status Dispatcher::AdmitCheapCall(admission::TenantId tenant) {
  absl::MutexLock lock(&mutex_);
  const auto refusal = admission_.AdmitCheapCall(tenant, clock_->Now());
  return refusal.has_value() ? Refuse(tenant, *refusal) : absl::OkStatus();
}

void Dispatcher::Settle(EntryId account, const admission::Meter::Use& used) {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    const admission::TenantId tenant = admission_.tenant(account);
    admission_.Settle(account, used, now);
    probe_->admission().Used(tenant, used);
    Show(tenant);
    // Its tenant may have waited for this.
    if (!admission_.queue().empty()) PumpLocked(now, &deliveries);
  }
  Deliver(std::move(deliveries));
}

void Dispatcher::Again(EntryId id, std::shared_ptr<const Ask> ask, int choice, std::vector<Incarnation> avoid,
                       bool begun) {
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    const absl::Time due = begun ? ask->deadline : foresight_.Due(ask->deadline, ask->request.arrival);
    const absl::Time expires = std::min(due, now + options_.max_wait);
    admission_.PutBack(id, expires, now);
    Show(ask->tenant);
    waiting_.emplace(id, Waiting{.ask = std::move(ask),
                                 .choice = choice,
                                 .avoid = std::move(avoid),
                                 .begun = begun,
                                 .came = now,
                                 .expires = expires});
  }
  Pump();
}

void Dispatcher::Withdraw(EntryId id) {
  Waiting dropped;  // its callback goes after the lock
  absl::MutexLock lock(&mutex_);
  if (!admission_.Withdraw(id, clock_->Now())) return;
  dropped = std::move(waiting_.extract(id).mapped());
  Show(dropped.ask->tenant);
}

void Dispatcher::Pump() {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    if (admission_.queue().empty()) return;
    PumpLocked(clock_->Now(), &deliveries);
  }
  Deliver(std::move(deliveries));
}

void Dispatcher::Tick() {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    for (const EntryId id : admission_.TakeExpired(now)) {
      deliveries.push_back(Take(id, Expired(waiting_.at(id), now)));
    }
    PumpLocked(now, &deliveries);
  }
  Deliver(std::move(deliveries));
}

void Dispatcher::MaintainIndex() {
  if (index_ == nullptr) return;
  constexpr int kMost = 64;  // a bounded piece of work each, some milliseconds in all
  for (int i = 0; i < kMost && index_->Maintain(clock_->Now()); ++i) {
  }
  probe_->Index(index_->stats());
}

Dispatcher::Outlook Dispatcher::OutlookOf(const Ask& ask, const placement::Prediction& predicted,
                                          const fleet::Worker* computes) const {
  Outlook outlook;
  if (foresight_.trusted()) {
    outlook.predicted = {.ttft = foresight_.Cautious(predicted.ttft()),
                         .queue = foresight_.Cautious(predicted.wait)};
    if (computes != nullptr) {
      const char* const role = computes->identity().role == fleet::Role::kDecode ? "decode" : "prefill";
      outlook.predicted.worker = fmt::format("{} worker {}", role, computes->identity().id);
    }
  }
  outlook.due = foresight_.Due(ask.deadline, ask.request.arrival,
                               foresight_.Cautious(predicted.ttft() - predicted.wait));
  return outlook;
}

Dispatcher::Outlook Dispatcher::OutlookOfWaiting(const Ask& ask, absl::Time now) {
  const Outlook unknown = OutlookOf(ask, {}, nullptr);
  if (unknown.due == absl::InfiniteFuture() || !foresight_.trusted()) return unknown;
  const std::shared_ptr<const fleet::View> view = fleet_->view();
  const bool goes_at_once =
      admission_.queue().empty() && std::any_of(view->decode.begin(), view->decode.end(),
                                                [&](const auto& worker) { return Takes(*worker, now); });
  if (goes_at_once || view->decode.empty() || !Busy(*view)) return unknown;
  if (index_ != nullptr) index_->Match(ask.chain, &matches_);
  WorkerStates decode(view->decode, matches_), prefill(view->prefill, matches_);
  ConfirmPeers(index_, ask.chain, decode, prefill);
  placement::Request request = ask.request;
  request.now = now;
  const placement::Choice choice = policy_->Choose(request, decode.workers, prefill.workers);
  const auto& computes =
      choice.prefill.empty() ? view->decode[choice.decode] : view->prefill[choice.prefill.front()];
  return OutlookOf(ask, choice.predicted, computes.get());
}

bool Dispatcher::Busy(const fleet::View& view) {
  return std::any_of(view.decode.begin(), view.decode.end(),
                     [](const auto& worker) { return worker->BookedRequests() > 0; });
}

bool Dispatcher::Takes(const fleet::Worker& worker, absl::Time now) const {
  return worker.BookedRequests() < options_.worker_concurrency && worker.GateAllows(now);
}

absl::Status Dispatcher::Expired(const Waiting& waiting, absl::Time now) {
  if (waiting.ask->deadline <= now) {
    return absl::DeadlineExceededError("the deadline passed while the request waited for a decode worker");
  }
  if (waiting.expires < waiting.came + options_.max_wait) {
    const bool clients = waiting.ask->deadline != absl::InfiniteFuture();
    return Refuse(
        waiting.ask->tenant,
        {admission::Reason::kDeadline,
         clients ? fmt::format(
                       "the deadline is in {:.3f} s, and even a worker that had room now would need longer "
                       "for the first token: allow more time or try again later",
                       absl::ToDoubleSeconds(waiting.ask->deadline - now))
                 : fmt::format(
                       "no worker could give the first token within {:.3f} s, which is what a request "
                       "without a deadline may take here: set one that allows more time, or try again later",
                       absl::ToDoubleSeconds(options_.default_ttft)),
         admission_.RetryDelay(waiting.ask->tenant)});
  }
  return Refuse(waiting.ask->tenant, {admission::Reason::kMaxWait,
                                      fmt::format("no decode worker had room for {} s; try again later",
                                                  absl::ToDoubleSeconds(options_.max_wait)),
                                      admission_.RetryDelay(waiting.ask->tenant)});
}

absl::Status Dispatcher::Refuse(admission::TenantId tenant, const admission::Refusal& refusal) {
  probe_->admission().Refused(tenant, refusal.reason);
  if (refusal.retry == absl::InfiniteDuration()) return absl::FailedPreconditionError(refusal.message);
  return rpc::WithRetryDelay(absl::ResourceExhaustedError(refusal.message), refusal.retry);
}

void Dispatcher::Show(admission::TenantId tenant) {
  const admission::Queue& queue = admission_.queue();
  probe_->Queued(queue.size(), queue.bytes());
  probe_->admission().Depth(tenant, queue.depth(tenant), admission_.running(tenant));
}

void Dispatcher::ShowLimits() {
  const absl::Time now = clock_->Now();
  for (const admission::TenantId tenant : tenants_)
    probe_->admission().Left(tenant, admission_.LeftOver(tenant, now));
}

void Dispatcher::ShowAffinity() {
  probe_->HotPrefixes(hot_.Top(Probe::kHotPrefixes, clock_->Now()));
  const std::shared_ptr<const fleet::View> view = fleet_->view();
  std::vector<WorkerHits::Name> names;
  for (const auto& worker : view->decode) names.emplace_back(worker->identity().id, "decode");
  for (const auto& worker : view->prefill) names.emplace_back(worker->identity().id, "prefill");
  probe_->worker_hits().Keep(names);
}

Dispatcher::Delivery Dispatcher::Take(EntryId id, absl::StatusOr<Placement> result) {
  Delivery delivery{.waiting = std::move(waiting_.extract(id).mapped()), .result = std::move(result)};
  Show(delivery.waiting.ask->tenant);
  return delivery;
}

void Dispatcher::PumpLocked(absl::Time now, std::vector<Delivery>* deliveries) {
  const std::shared_ptr<const fleet::View> view = fleet_->view();
  const auto takes = [&](const std::shared_ptr<fleet::Worker>& worker) { return Takes(*worker, now); };
  std::vector<std::shared_ptr<fleet::Worker>> some;
  for (const fleet::Fleet::Move& move : fleet_->TakeMoves()) {
    if (move.arrived) {
      policy_->Recall(move.slot, move.incarnation.value());
      if (move.step_cost.has_value()) policy_->Introduce(move.slot, *move.step_cost);
    } else {
      policy_->Keep(move.slot, move.incarnation.value());
      policy_->Forget(move.slot);
    }
  }
  std::vector<EntryId> passed_over;  // those that none of the open workers can take
  while (const std::optional<EntryId> id = admission_.First()) {
    if (view->decode.empty()) {
      if (!fleet_->settled() && now - started_ < options_.settle_patience) break;
      admission_.Withdraw(*id, now);
      deliveries->push_back(Take(*id, fleet_->NoDecodeWorker()));
      continue;
    }
    if (!foresight_.trusted()) {
      int64_t unanswered = 0;
      for (const auto* pool : {&view->decode, &view->prefill}) {
        for (const auto& worker : *pool) unanswered += worker->PromptsBooked();
      }
      if (!foresight_.MayTry(unanswered, std::ssize(view->decode))) break;
    }
    Candidates open = view->decode;
    if (!std::all_of(open.begin(), open.end(), takes)) {
      some.clear();
      std::copy_if(open.begin(), open.end(), std::back_inserter(some), takes);
      open = some;
      if (open.empty()) break;
    }
    const Waiting& waiting = waiting_.at(*id);
    std::vector<Belief> beliefs;
    auto result = TryPlace(waiting, *view, open, now, &beliefs);
    if (result.has_value() && !result->ok()) {
      admission_.Withdraw(*id, now);
    } else {
      admission_.Serve(*id, now);
    }
    if (!result.has_value()) {
      passed_over.push_back(*id);
      continue;
    }
    if (result->ok()) probe_->admission().Waited(waiting.ask->tenant, now - waiting.came);
    deliveries->push_back(Take(*id, std::move(*result)));
    deliveries->back().beliefs = std::move(beliefs);
  }
  for (const EntryId id : passed_over) admission_.PutBack(id, waiting_.at(id).expires, now);
}

std::optional<absl::StatusOr<Placement>> Dispatcher::TryPlace(const Waiting& waiting, const fleet::View& view,
                                                              Candidates open, absl::Time now,
                                                              std::vector<Belief>* beliefs) {
  std::vector<std::shared_ptr<fleet::Worker>> some;
  const absl::StatusOr<Candidates> fit =
      FitFor(waiting.ask->request, waiting.avoid, view.decode, open, &some);
  if (!fit.ok()) return fit.status();
  if (fit->empty()) return std::nullopt;
  return Place(waiting, view, *fit, now, beliefs);
}

absl::StatusOr<Placement> Dispatcher::Place(const Waiting& waiting, const fleet::View& view, Candidates open,
                                            absl::Time now, std::vector<Belief>* beliefs) {
  const Ask& ask = *waiting.ask;
  if (index_ != nullptr) index_->Match(ask.chain, &matches_);
  placement::Request request = ask.request;
  request.now = now;
  WorkerStates decode(open, matches_), prefill(view.prefill, matches_);
  ConfirmPeers(index_, ask.chain, decode, prefill);
  auto decision = std::make_shared<Decision>();
  decision->choice = policy_->Choose(request, decode.workers, prefill.workers);
  const placement::Choice& choice = decision->choice;
  if (!waiting.begun) {
    const auto& computes =
        choice.prefill.empty() ? open[choice.decode] : view.prefill[choice.prefill.front()];
    const Outlook outlook = OutlookOf(ask, choice.predicted, computes.get());
    // One that is late already is for Expired() to judge; while nothing runs, whatever comes is tried.
    if (const absl::Duration left = outlook.due - now;
        outlook.predicted.ttft > left && left > absl::ZeroDuration() && Busy(view)) {
      return Refuse(ask.tenant,
                    admission::AdmissionController::TooLate(ask.deadline != absl::InfiniteFuture(), left,
                                                            absl::ZeroDuration(), outlook.predicted));
    }
  }

  Placement placement;
  placement.decode = open[choice.decode];
  for (size_t at : choice.prefill) placement.prefill.push_back(view.prefill[at]);
  if (choice.fetch_from.has_value()) {
    for (const Candidates peers : {Candidates(view.prefill), open}) {
      const auto peer = std::find_if(peers.begin(), peers.end(), [&](const auto& worker) {
        return worker->slot() == *choice.fetch_from;
      });
      if (peer != peers.end()) placement.fetch_from = *peer;
    }
    placement.fetch_blocks = choice.fetch_blocks;
  }
  if (placement.fetch_from != nullptr) decision->fetch_from = placement.fetch_from->identity().id;
  decision->decode = placement.decode;
  decision->prefill = placement.prefill;
  decision->prompt_tokens = request.prompt_tokens;
  decision->prompt_blocks = std::ssize(ask.chain);
  decision->decode_matched = decode.workers[choice.decode].matched_blocks;
  decision->debug = ask.debug;

  const std::shared_ptr<fleet::Worker> computes =
      choice.prefill.empty() ? nullptr : view.prefill[choice.prefill.front()];
  if (computes != nullptr) decision->prefill_matched = prefill.workers[choice.prefill.front()].matched_blocks;
  const int64_t matched = std::max(decision->decode_matched, decision->prefill_matched);
  fleet::Work work(request.prompt_tokens);
  work.uncached_tokens = choice.uncached_tokens > 0
                             ? choice.uncached_tokens
                             : std::max<int64_t>(1, request.prompt_tokens - matched * request.block_tokens);
  work.cached_tokens = std::max<int64_t>(0, request.prompt_tokens - work.uncached_tokens);
  work.due = choice.due;
  placement.booking = fleet_->Book(open[choice.decode], computes, work, now);
  placement.learn = [this, decision](v1::Finished* finished) { Learn(*decision, finished); };
  placement.first_token = [this, predicted = choice.predicted.ttft(), trusted = foresight_.trusted()](
                              absl::Duration took) { OnFirstToken(predicted, trusted, took); };

  placements_[static_cast<size_t>(choice.reason)]->Increment();
  probe_->Predicted(request.prompt_tokens, decision->decode_matched * request.block_tokens,
                    decision->prefill_matched * request.block_tokens);
  probe_->worker_hits().Placed({placement.decode->identity().id, "decode"}, request.prompt_tokens,
                               decision->decode_matched * request.block_tokens);
  if (computes != nullptr) {
    const int64_t beyond = std::max<int64_t>(0, decision->prefill_matched - decision->decode_matched);
    probe_->worker_hits().Placed({computes->identity().id, "prefill"}, request.prompt_tokens,
                                 beyond * request.block_tokens);
  }
  if (index_ == nullptr) return placement;
  if (const size_t longest = std::min<size_t>(matches_.longest, ask.chain.size()); longest > 0) {
    const auto holders = std::count(matches_.blocks.begin(), matches_.blocks.end(), matches_.longest);
    hot_.Placed(ask.chain[longest - 1], static_cast<int64_t>(longest), holders, now);
  }
  const absl::Time until =
      now + std::clamp(absl::Seconds(4 * choice.predicted.ttft()), absl::Seconds(5), absl::Seconds(60));
  const auto believe = [&](WorkerSlot slot, int64_t from) {
    const std::span<const kv::BlockHash> rest = std::span(ask.chain).subspan(from);
    const size_t now_told = std::min(rest.size(), kBelievedAtOnce);
    index_->Speculate(slot, rest.first(now_told), until);
    if (now_told < rest.size()) beliefs->push_back({slot, from + now_told, until});
  };
  believe(placement.decode->slot(), decision->decode_matched);
  if (computes != nullptr) believe(computes->slot(), decision->prefill_matched);
  return placement;
}

void Dispatcher::OnFirstToken(double predicted, bool trusted, absl::Duration took) {
  bool may_wait = false;
  {
    absl::MutexLock lock(&mutex_);
    may_wait = !foresight_.trusted();
    foresight_.Observe(predicted, absl::ToDoubleSeconds(took), trusted);
  }
  if (may_wait) Pump();
}

void Dispatcher::Learn(const Decision& decision, v1::Finished* finished) {
  const v1::Usage& usage = finished->usage();
  const v1::Relay& relay = finished->relay();
  probe_->Cached(usage.decode_cached_tokens(), usage.prefill_cached_tokens());
  if (decision.debug) decision.Explain(policy_name_, finished->mutable_placement());
  if (relay.migrations() > 0) return;  // its times are two workers'
  probe_->worker_hits().Found({decision.decode->identity().id, "decode"}, usage.decode_cached_tokens());
  if (!relay.prefill_worker().empty()) {
    probe_->worker_hits().Found({relay.prefill_worker(), "prefill"}, usage.prefill_cached_tokens());
  }
  const std::optional<placement::Outcome> outcome = decision.OutcomeOf(*finished);
  if (!outcome.has_value()) return;
  absl::MutexLock lock(&mutex_);
  policy_->Observe(*outcome);
}

void Dispatcher::Deliver(std::vector<Delivery> deliveries) {
  for (Delivery& delivery : deliveries) {
    const std::shared_ptr<const Ask> ask = delivery.waiting.ask;
    ask->result(delivery.waiting.choice, std::move(delivery.result));
    for (const Belief& belief : delivery.beliefs) {
      index_->Speculate(belief.slot, std::span(ask->chain).subspan(belief.from), belief.until);
    }
  }
}

}  // namespace baton::router
