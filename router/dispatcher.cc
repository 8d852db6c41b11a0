#include "router/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/rpc/status.h"

namespace baton::router {

using admission::EntryId;

namespace {

std::vector<placement::WorkerState> StatesOf(std::span<const std::shared_ptr<fleet::Worker>> workers) {
  std::vector<placement::WorkerState> states;
  states.reserve(workers.size());
  for (const auto& worker : workers) {
    placement::WorkerState& state = states.emplace_back();
    state.slot = WorkerSlot(static_cast<uint32_t>(worker->identity().seat));
    state.queued_tokens = worker->QueuedTokens();
    state.running = worker->Requests();
    state.total_blocks = worker->TotalBlocks();
  }
  return states;
}

}  // namespace

Dispatcher::Dispatcher(Options options, fleet::Fleet* fleet, std::unique_ptr<placement::Policy> policy,
                       const Clock* clock, Probe* probe)
    : options_(options),
      fleet_(fleet),
      clock_(clock),
      probe_(probe),
      started_(clock->Now()),
      policy_name_(policy->name()),
      policy_(std::move(policy)),
      queue_(options.limits),
      last_placed_(started_) {
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
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto needed = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); };
      mutex_.Await(absl::Condition(&needed));
      mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kTick);
      if (stopping_) return;
    }
    Tick();
  }
}

absl::StatusOr<std::vector<EntryId>> Dispatcher::Submit(std::shared_ptr<const Ask> ask) {
  std::vector<EntryId> ids;
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    if (absl::Status full = queue_.CheckRoom(ask->choices, ask->choices * ask->bytes); !full.ok()) {
      return rpc::WithRetryDelay(std::move(full), RetryDelay());
    }
    for (int choice = 0; choice < ask->choices; ++choice) {
      Waiting waiting{.ask = ask, .choice = choice, .avoid = {}, .gives_up = now + options_.max_wait};
      const admission::Entry entry{.priority = ask->priority,
                                   .bytes = ask->bytes,
                                   .deadline = std::min(ask->deadline, waiting.gives_up)};
      ids.push_back(queue_.Add(entry));
      waiting_.emplace(ids.back(), std::move(waiting));
    }
    PumpLocked(now, &deliveries);
  }
  Deliver(std::move(deliveries));
  return ids;
}

void Dispatcher::Again(EntryId id, std::shared_ptr<const Ask> ask, int choice,
                       std::vector<Incarnation> avoid) {
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time gives_up = clock_->Now() + options_.max_wait;
    queue_.PutBack(
        id, {.priority = ask->priority, .bytes = ask->bytes, .deadline = std::min(ask->deadline, gives_up)});
    waiting_.emplace(
        id,
        Waiting{.ask = std::move(ask), .choice = choice, .avoid = std::move(avoid), .gives_up = gives_up});
  }
  Pump();
}

void Dispatcher::Withdraw(EntryId id) {
  Waiting dropped;  // its callback goes after the lock
  absl::MutexLock lock(&mutex_);
  if (!queue_.Remove(id)) return;
  dropped = std::move(waiting_.extract(id).mapped());
  probe_->Queued(queue_.size(), queue_.bytes());
}

void Dispatcher::Pump() {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    if (queue_.empty()) return;
    PumpLocked(clock_->Now(), &deliveries);
  }
  Deliver(std::move(deliveries));
}

void Dispatcher::Tick() {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    for (EntryId id : queue_.TakeExpired(now)) {
      const Waiting& waiting = waiting_.at(id);
      absl::Status late = waiting.ask->deadline <= now
                              ? absl::DeadlineExceededError(
                                    "the deadline passed while the request waited for a decode worker")
                              : rpc::WithRetryDelay(absl::ResourceExhaustedError(fmt::format(
                                                        "no decode worker had room for {} s; try again later",
                                                        absl::ToDoubleSeconds(options_.max_wait))),
                                                    RetryDelay());
      deliveries.push_back(Take(id, std::move(late)));
    }
    PumpLocked(now, &deliveries);
  }
  Deliver(std::move(deliveries));
}

Dispatcher::Delivery Dispatcher::Take(EntryId id, absl::StatusOr<Placement> result) {
  queue_.Remove(id);
  return Delivery{.waiting = std::move(waiting_.extract(id).mapped()), .result = std::move(result)};
}

void Dispatcher::PumpLocked(absl::Time now, std::vector<Delivery>* deliveries) {
  const std::shared_ptr<const fleet::View> view = fleet_->view();
  const auto takes = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return worker->BookedRequests() < options_.worker_concurrency && worker->GateAllows(now);
  };
  std::vector<std::shared_ptr<fleet::Worker>> some;
  std::optional<EntryId> id = queue_.First();
  while (id.has_value()) {
    const std::optional<EntryId> next = queue_.After(*id);
    if (view->decode.empty()) {
      if (!fleet_->settled() && now - started_ < options_.settle_patience) break;
      deliveries->push_back(Take(*id, fleet_->NoDecodeWorker()));
      id = next;
      continue;
    }
    Candidates open = view->decode;
    if (!std::all_of(open.begin(), open.end(), takes)) {
      some.clear();
      std::copy_if(open.begin(), open.end(), std::back_inserter(some), takes);
      open = some;
      if (open.empty()) break;
    }
    auto result = TryPlace(waiting_.at(*id), *view, open, now);
    if (result.has_value()) deliveries->push_back(Take(*id, std::move(*result)));
    id = next;
  }
  probe_->Queued(queue_.size(), queue_.bytes());
}

std::optional<absl::StatusOr<Placement>> Dispatcher::TryPlace(const Waiting& waiting, const fleet::View& view,
                                                              Candidates open, absl::Time now) {
  const placement::Request& request = waiting.ask->request;
  const int64_t blocks = BlocksFor(request.prompt_tokens + request.max_tokens);
  const auto avoided = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return std::find(waiting.avoid.begin(), waiting.avoid.end(), worker->identity().incarnation) !=
           waiting.avoid.end();
  };
  const auto too_small = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return worker->TotalBlocks() != 0 && worker->TotalBlocks() < blocks;
  };
  const auto unfit = [&](const std::shared_ptr<fleet::Worker>& worker) {
    return avoided(worker) || too_small(worker);
  };

  std::vector<std::shared_ptr<fleet::Worker>> fit;
  if (std::any_of(open.begin(), open.end(), unfit)) {
    std::remove_copy_if(open.begin(), open.end(), std::back_inserter(fit), unfit);
    open = fit;
  }
  if (open.empty()) {
    const auto& all = view.decode;
    if (std::all_of(all.begin(), all.end(), too_small)) {
      int64_t most = 0;
      for (const auto& worker : all) most = std::max(most, worker->TotalBlocks());
      return absl::FailedPreconditionError(fmt::format(
          "a prompt of {} tokens and max_tokens of {} take {} KV blocks, and the largest decode worker "
          "has {}: lower max_tokens or give the workers more KV memory",
          request.prompt_tokens, request.max_tokens, blocks, most));
    }
    if (std::all_of(all.begin(), all.end(), unfit)) {
      return absl::UnavailableError(
          "every decode worker that could take the request failed before accepting it; retry");
    }
    return std::nullopt;
  }

  const placement::Choice choice = policy_->Choose(request, StatesOf(open), StatesOf(view.prefill));
  Placement placement;
  placement.decode = open[choice.decode];
  for (size_t at : choice.prefill) placement.prefill.push_back(view.prefill[at]);
  placement.booking = fleet_->Book(open[choice.decode],
                                   choice.prefill.empty() ? nullptr : view.prefill[choice.prefill.front()],
                                   request.prompt_tokens, now);
  probe_->Placed(policy_name_);
  constexpr double kWeight = 0.1;
  placed_every_seconds_ += kWeight * (absl::ToDoubleSeconds(now - last_placed_) - placed_every_seconds_);
  last_placed_ = now;
  return placement;
}

absl::Duration Dispatcher::RetryDelay() const {
  const absl::Duration to_drain = absl::Seconds(placed_every_seconds_ * static_cast<double>(queue_.size()));
  return std::clamp(to_drain, absl::Milliseconds(100), absl::Seconds(10));
}

void Dispatcher::Deliver(std::vector<Delivery> deliveries) {
  for (Delivery& delivery : deliveries) {
    delivery.waiting.ask->result(delivery.waiting.choice, std::move(delivery.result));
  }
}

}  // namespace baton::router
