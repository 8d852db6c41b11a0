// AdmissionController: admits requests or refuses them. It has the queue of a fleet, the tenants' meters,
// which it may share with those of other fleets, the number of choices that each tenant runs, and the
// prediction of waits. A request is admitted with all its choices or refused with a reason; an admitted one
// has an account until it is settled with what it really used. Plain state without a lock or a clock: the
// dispatcher has both.
//
// Calls for one request: Admit -> Serve for each choice when its turn comes (PutBack if no worker took it,
// Withdraw if it is no longer wanted) -> Settle once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/time/time.h"
#include "router/admission/drain_rate.h"
#include "router/admission/meter.h"
#include "router/admission/meters.h"
#include "router/admission/queue.h"
#include "router/admission/refusal.h"
#include "router/admission/request.h"
#include "router/admission/tenant_limits.h"

namespace baton::router::admission {

class AdmissionController {
 public:
  struct Admitted {
    std::vector<EntryId> entries;  // by choice; the first one names the request's account
    // Others' choices that went to make room. Withdrawn here; the caller answers them.
    std::vector<EntryId> displaced;
  };

  explicit AdmissionController(Queue::Limits limits,
                               std::shared_ptr<Meters> meters = std::make_shared<Meters>(),
                               std::shared_ptr<Meters> models = std::make_shared<Meters>())
      : queue_(limits), meters_(std::move(meters)), models_(std::move(models)) {}

  // Also changes one that is known; what it has used stays used.
  void SetTenant(TenantId tenant, const TenantLimits& limits, absl::Time now);

  // `patience`: how long it may wait in any case.
  std::variant<Admitted, Refusal> Admit(const Request& request, const FirstToken& first,
                                        absl::Duration patience, absl::Time now);
  // The refusal of one whose first token is due in `left`, and predicted so after `queued` in this router.
  static Refusal TooLate(bool clients_deadline, absl::Duration left, absl::Duration queued,
                         const FirstToken& predicted);
  // Counts against the rate of requests without an account: for calls that take no worker.
  std::optional<Refusal> AdmitCheapCall(TenantId tenant, absl::Time now);

  // The choice whose turn it is, if any may go.
  std::optional<EntryId> First() const { return queue_.First(); }
  // First() goes to a worker.
  void Serve(EntryId id, absl::Time now);
  // A waiting choice leaves the queue for a worker before its turn. False: its tenant has all that it may
  // run.
  bool Overtake(EntryId id, absl::Time now);
  // A served choice waits again, at its old place, until `deadline`.
  void PutBack(EntryId id, absl::Time deadline, absl::Time now);
  // Leaves the queue. False if it does not wait.
  bool Withdraw(EntryId id, absl::Time now);
  // Removed and returned: choices that waited too long, or whose deadline can't be met any more.
  std::vector<EntryId> TakeExpired(absl::Time now);
  // One of those waits on, at its old place, until `deadline`.
  void WaitOn(EntryId id, absl::Time deadline);
  // Nobody is there to serve the queue, or somebody is again. That time tells nothing of how fast the queue
  // drains.
  void SetAbsent(bool absent, absl::Time now);

  // The request's end, whatever it was; once, with all its choices out of the queue. Zero for what never
  // began.
  void Settle(EntryId account, const Meter::Use& used, absl::Time now);

  // How long so many waiting tokens take to go; nothing if that can't be told yet.
  std::optional<absl::Duration> TimeToDrain(double tokens) const;
  // How long a new choice of this tenant and priority will wait; nothing if that can't be told yet.
  std::optional<absl::Duration> PredictedWait(TenantId tenant, int priority) const;
  // After which a refused request of this tenant has a chance: the time that its line takes to drain, as far
  // as a minute ahead. In a long queue a request that comes back sooner is refused again, and a tenant with
  // little ahead of it is not told of the others' backlog.
  absl::Duration RetryDelay(TenantId tenant) const;

  const Queue& queue() const { return queue_; }
  TenantId tenant(EntryId account) const { return accounts_.at(account).tenant; }
  int64_t running(TenantId tenant) const;
  Meter::Left LeftOver(TenantId tenant, absl::Time now) const;
  size_t accounts() const { return accounts_.size(); }

 private:
  struct TenantState {
    TenantLimits limits;
    int64_t running = 0;  // choices on workers
  };
  struct Account {
    TenantId tenant;
    std::optional<TenantId> model;
    int choices = 1;
    int running = 0;
    Meter::Use charged;
    Entry entry;  // of each choice
  };

  TenantState& At(TenantId tenant);
  Account& AccountOf(EntryId id);
  void Run(Account* account, int change);

  Queue queue_;
  const std::shared_ptr<Meters> meters_, models_;  // of tenants, and of models
  // The rate of drain up to `now`.
  void Advance(absl::Time now) { rate_.Advance(now, !queue_.empty() && !absent_); }

  DrainRate rate_;
  bool absent_ = false;
  absl::node_hash_map<TenantId, TenantState> tenants_;
  absl::flat_hash_map<EntryId, Account> accounts_;
  // Further choices of a request, to its first.
  absl::flat_hash_map<EntryId, EntryId> further_;
};

}  // namespace baton::router::admission
