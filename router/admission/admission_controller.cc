#include "router/admission/admission_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/check.h"

namespace baton::router::admission {
namespace {

constexpr absl::Duration kMinRetry = absl::Milliseconds(100);
// The queue is another one by then, whatever this one promises.
constexpr absl::Duration kLongestRetry = absl::Seconds(60);
// For each choice that waits, as long as the drain rate is not known.
constexpr absl::Duration kUnknownWait = absl::Milliseconds(10);

}  // namespace

void AdmissionController::SetTenant(TenantId tenant, const TenantLimits& limits, absl::Time now) {
  TenantState& state = tenants_[tenant];
  state.limits = limits;
  meters_->Configure(tenant, limits, now);
  queue_.SetTenant(tenant, limits.weight, limits.queue);
  queue_.Pause(tenant, limits.concurrency > 0 && state.running >= limits.concurrency);
}

std::variant<AdmissionController::Admitted, Refusal> AdmissionController::Admit(const Request& request,
                                                                                const FirstToken& first,
                                                                                absl::Duration patience,
                                                                                absl::Time now) {
  Advance(now);
  const int64_t answer = meters_->ExpectedAnswer(request.tenant, request.max_tokens);
  const Meter::Use use = {
      .requests = 1, .prompt_tokens = request.prompt_tokens, .output_tokens = answer * request.choices};
  if (auto refusal = meters_->Check(request.tenant, use, now)) return *std::move(refusal);
  if (request.model.has_value()) {
    if (auto refusal = models_->Check(*request.model, use, now, "model")) return *std::move(refusal);
  }

  if (first.due != absl::InfiniteFuture()) {
    const absl::Duration wait =
        PredictedWait(request.tenant, request.priority).value_or(absl::ZeroDuration());
    if (const absl::Duration left = first.due - now;
        wait + first.ttft > left && left > absl::ZeroDuration()) {
      return TooLate(request.has_deadline(), left, wait, first);
    }
  }

  Entry entry = {.tenant = request.tenant,
                 .priority = request.priority,
                 .tokens = std::max<int64_t>(1, request.prompt_tokens + answer),
                 .bytes = request.bytes,
                 .arrival = now,
                 .deadline = std::min(first.due - first.ttft, now + patience)};
  Admitted admitted;
  std::vector<Entry> displaced_entries;
  while (auto refusal = queue_.CheckRoom(request.tenant, request.choices, entry.tokens, entry.bytes)) {
    const auto displaced = refusal->reason == Reason::kTotalQueue
                               ? queue_.Displaceable(request.tenant, request.choices * entry.tokens)
                               : std::nullopt;
    if (!displaced.has_value()) {
      // Entries displaced in vain go back to where they were.
      for (size_t i = 0; i < displaced_entries.size(); ++i) {
        queue_.PutBack(admitted.displaced[i], displaced_entries[i], 0);
      }
      refusal->retry = RetryDelay(request.tenant);
      return *std::move(refusal);
    }
    displaced_entries.push_back(*queue_.Remove(*displaced));
    admitted.displaced.push_back(*displaced);
  }
  meters_->Charge(request.tenant, use, now);
  if (request.model.has_value()) models_->Charge(*request.model, use, now);
  for (int choice = 0; choice < request.choices; ++choice) {
    admitted.entries.push_back(queue_.Add(entry));
    if (choice > 0) further_.emplace(admitted.entries.back(), admitted.entries.front());
  }
  accounts_.emplace(admitted.entries.front(), Account{.tenant = request.tenant,
                                                      .model = request.model,
                                                      .choices = request.choices,
                                                      .charged = use,
                                                      .entry = entry});
  return admitted;
}

Refusal AdmissionController::TooLate(bool clients_deadline, absl::Duration left, absl::Duration queued,
                                     const FirstToken& predicted_by) {
  const absl::Duration needed = queued + predicted_by.ttft;
  const double allowed = absl::ToDoubleSeconds(left);
  const std::string predicted = fmt::format(
      "the first token is predicted in {:.3f} s ({:.3f} s in this router's queue, {:.3f} s in the queue of "
      "{}, "
      "{:.3f} s for the prompt itself)",
      absl::ToDoubleSeconds(needed), absl::ToDoubleSeconds(queued), absl::ToDoubleSeconds(predicted_by.queue),
      predicted_by.worker.empty() ? "its worker" : predicted_by.worker,
      absl::ToDoubleSeconds(predicted_by.ttft - predicted_by.queue));
  return {Reason::kDeadline,
          clients_deadline
              ? fmt::format("the deadline is in {:.3f} s, and {}: allow more time or try again later",
                            allowed, predicted)
              : fmt::format("{}, and without a deadline it may take {:.3f} s here: set one that allows more "
                            "time, or try again later",
                            predicted, allowed),
          std::clamp(needed - left, kMinRetry, kLongestRetry)};
}

std::optional<Refusal> AdmissionController::AdmitCheapCall(TenantId tenant, absl::Time now) {
  auto refusal = meters_->Check(tenant, {.requests = 1}, now);
  if (!refusal.has_value()) meters_->Charge(tenant, {.requests = 1}, now);
  return refusal;
}

void AdmissionController::Serve(EntryId id, absl::Time now) {
  Advance(now);
  const Entry entry = queue_.Serve(id);
  if (entry.arrival < now) rate_.Served(entry.tokens);
  Run(&AccountOf(id), +1);
}

bool AdmissionController::Overtake(EntryId id, absl::Time now) {
  Advance(now);
  const std::optional<Entry> entry = queue_.Overtake(id);
  if (!entry.has_value()) return false;
  if (entry->arrival < now) rate_.Served(entry->tokens);
  Run(&AccountOf(id), +1);
  return true;
}

void AdmissionController::PutBack(EntryId id, absl::Time deadline, absl::Time now) {
  Advance(now);
  Account& account = AccountOf(id);
  if (account.entry.arrival < now) rate_.Served(-account.entry.tokens);
  Entry entry = account.entry;
  entry.deadline = deadline;
  queue_.PutBack(id, entry, entry.tokens);
  Run(&account, -1);
}

bool AdmissionController::Withdraw(EntryId id, absl::Time now) {
  Advance(now);
  return queue_.Remove(id).has_value();
}

std::vector<EntryId> AdmissionController::TakeExpired(absl::Time now) {
  Advance(now);
  std::vector<EntryId> expired;
  for (const auto& [id, entry] : queue_.TakeExpired(now)) expired.push_back(id);
  return expired;
}

void AdmissionController::WaitOn(EntryId id, absl::Time deadline) {
  Entry entry = AccountOf(id).entry;
  entry.deadline = deadline;
  queue_.PutBack(id, entry, 0);
}

void AdmissionController::SetAbsent(bool absent, absl::Time now) {
  Advance(now);
  absent_ = absent;
}

void AdmissionController::Settle(EntryId id, const Meter::Use& used, absl::Time now) {
  const auto found = accounts_.find(id);
  BATON_CHECK(found != accounts_.end()) << "account " << id.value() << " is not open";
  Account account = found->second;
  Run(&account, -account.running);
  meters_->Settle(account.tenant, account.charged, used, account.choices, now);
  if (account.model.has_value()) {
    models_->Settle(*account.model, account.charged, used, account.choices, now);
  }
  for (int choice = 1; choice < account.choices; ++choice) further_.erase(EntryId(id.value() + choice));
  accounts_.erase(found);
}

std::optional<absl::Duration> AdmissionController::PredictedWait(TenantId tenant, int priority) const {
  if (queue_.empty()) return absl::ZeroDuration();
  return TimeToDrain(queue_.TokensBefore(tenant, priority));
}

std::optional<absl::Duration> AdmissionController::TimeToDrain(double tokens) const {
  const std::optional<double> rate = rate_.TokensPerSecond();
  if (!rate.has_value()) return std::nullopt;
  return absl::Seconds(tokens / *rate);
}

absl::Duration AdmissionController::RetryDelay(TenantId tenant) const {
  const absl::Duration to_drain =
      PredictedWait(tenant, kWorstPriority).value_or(kUnknownWait * static_cast<int64_t>(queue_.size()));
  return std::clamp(to_drain, kMinRetry, kLongestRetry);
}

int64_t AdmissionController::running(TenantId tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.running;
}

Meter::Left AdmissionController::LeftOver(TenantId tenant, absl::Time now) const {
  return meters_->LeftOver(tenant, now);
}

AdmissionController::TenantState& AdmissionController::At(TenantId tenant) { return tenants_[tenant]; }

AdmissionController::Account& AdmissionController::AccountOf(EntryId id) {
  const auto first = further_.find(id);
  const auto found = accounts_.find(first == further_.end() ? id : first->second);
  BATON_CHECK(found != accounts_.end()) << "entry " << id.value() << " has no account";
  return found->second;
}

void AdmissionController::Run(Account* account, int change) {
  account->running += change;
  TenantState& state = At(account->tenant);
  state.running += change;
  BATON_CHECK(account->running >= 0 && state.running >= 0) << account->running << " of " << state.running;
  const int64_t limit = state.limits.concurrency;
  queue_.Pause(account->tenant, limit > 0 && state.running >= limit);
}

}  // namespace baton::router::admission
