// Dispatcher: where admission, placement and the fleet meet, under one lock. Choices come in, wait in the
// admission queue if no decode worker takes them now, and leave with a Placement or a refusal. Placer decides
// and books; the dispatcher has the lock, the clock and the queue. An event that changes something (a request
// that comes or ends, a worker's report) pumps the queue on its own thread; one thread of the dispatcher only
// watches the clock. Any thread; results are delivered without a lock held, possibly before Submit returns.
//
// No request waits in vain: one past its deadline is answered within kTick, one that no worker could ever
// hold is refused at once, and one without a deadline waits at most `max_wait`. While no decode worker is up,
// requests wait in the same way for one that is on its way (Fleet::decode_expected), and for `max_wait` after
// the last one left or was on its way, since processes and pods are replaced; otherwise they are refused at
// once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "protocol/block_hash.h"
#include "router/admission/admission_controller.h"
#include "router/dispatch/decode_presence.h"
#include "router/dispatch/dispatch_request.h"
#include "router/dispatch/fit.h"
#include "router/dispatch/placement.h"
#include "router/dispatch/placement_metrics.h"
#include "router/dispatch/placer.h"
#include "router/dispatch/waiting_choices.h"
#include "router/fleet/fleet.h"
#include "router/index/prefix_index.h"
#include "router/metrics/probe.h"
#include "router/placement/policy.h"

namespace baton::router {

class Dispatcher final : private PlacementObserver {
 public:
  struct Options {
    admission::Queue::Limits limits;
    // The tenants' meters, shared with the dispatchers of other fleets; null: its own.
    std::shared_ptr<admission::Meters> meters = nullptr;
    // Meters of models that have limits for all tenants together; null: none has.
    std::shared_ptr<admission::Meters> models = nullptr;
    // Choices that this router puts on one decode worker at a time.
    int64_t worker_concurrency = 256;
    absl::Duration max_wait = absl::Seconds(120);
    // Time for the first token of a request without a deadline (admission/ttft_deadlines.h).
    absl::Duration default_ttft = absl::InfiniteDuration();
    // How long after the start to wait for workers that have not answered yet, before saying that none is up.
    absl::Duration settle_patience = absl::Seconds(3);
  };
  static constexpr absl::Duration kTick = absl::Milliseconds(10);
  // How often requests hear that they still wait.
  static constexpr absl::Duration kTell = absl::Milliseconds(100);
  // How often the gauges that move by themselves are set.
  static constexpr absl::Duration kShow = absl::Seconds(1);

  // All outlive the dispatcher, which becomes the fleet's listener. The index may be null: then no worker is
  // known to hold anything.
  Dispatcher(Options options, fleet::Fleet& fleet, std::unique_ptr<placement::Policy> policy,
             const Clock& clock, Probe& probe, index::PrefixIndex* index = nullptr);
  ~Dispatcher() override;

  // Starts the thread that calls Tick(). Tests with a fake clock call Tick() themselves.
  void StartTicking();
  // Ends it, before whatever its listener uses. Again does nothing.
  void StopTicking();

  // A tenant, before its first request, or its new limits. `label` is its name in metrics. The tenant with
  // the id 0 is known from the start, as "default", without limits.
  void SetTenant(admission::TenantId tenant, const std::string& label, const admission::TenantLimits& limits);

  // All choices or none. RESOURCE_EXHAUSTED with a retry delay, saying which limit, if the tenant's rates,
  // the queue or the deadline don't allow it. An admitted request is settled in the end, by the first entry's
  // id.
  absl::StatusOr<std::vector<admission::EntryId>> Submit(std::shared_ptr<const DispatchRequest> request);
  // A call that takes no worker counts against the tenant's rate of requests too.
  absl::Status AdmitCheapCall(admission::TenantId tenant);
  // An admitted request has ended, with none of its choices waiting: what it really used.
  void Settle(admission::EntryId account, const admission::Meter::Use& used);
  // Puts a choice whose worker did not take it, or lost it, back at its old place in the queue; `avoid` are
  // workers that failed it. `begun`: its answer goes on from where it was, and no first token is due any
  // more.
  void Requeue(admission::EntryId id, std::shared_ptr<const DispatchRequest> request, int choice,
               std::vector<Incarnation> avoid, bool begun = false);
  // No result for this one, if there was none yet.
  void Withdraw(admission::EntryId id);

  // Requests are taken: a decode worker is up, or one was and the next is waited for.
  bool serves() const { return serves_.load(std::memory_order_relaxed); }
  // Called, on the thread of StartTicking, when serves() may have changed without a change of the fleet. Set
  // before it.
  void SetServesListener(std::function<void()> listener) { serves_listener_ = std::move(listener); }

  // Choices that wait, as they were last shown.
  int64_t waiting() const { return shown_waiting_.load(std::memory_order_relaxed); }

  // Places what can be placed.
  void Pump();
  // Pump, and refuse what waited too long.
  void Tick();

 private:
  struct Delivery {
    WaitingChoice waiting;
    absl::StatusOr<Placer::Placed> result;
  };

  // News for a choice that waits.
  struct Telling {
    std::shared_ptr<const DispatchRequest> request;
    int choice = 0;
    Waiting waiting;
  };
  void TellWaiting(absl::Time now, std::vector<Telling>* tellings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Places those that press.
  void PlacePressing(const fleet::View& view, absl::Time now, std::vector<Delivery>* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PumpLocked(absl::Time now, std::vector<Delivery>* deliveries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Delivery Take(admission::EntryId id, absl::StatusOr<Placer::Placed> result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tries one entry on the workers that take requests now. Nothing: it has to wait.
  std::optional<absl::StatusOr<Placer::Placed>> TryPlace(const WaitingChoice& waiting,
                                                         const fleet::View& view, WorkerSpan open,
                                                         absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnFirstToken(const Placement& placement, absl::Duration took) override;
  void OnFinished(const Placement& placement, v1::Finished* finished,
                  const baton::fleet::v1::StepMeans& steps) override;
  void MaintainIndex();
  // The first token of a request that will have to wait, as if it were placed now. A request that is
  // dispatched at once gets its prediction from its placement instead.
  admission::FirstToken IfWaiting(const DispatchRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The fleet as it is. `presence_` takes note of decode workers that have come or gone.
  std::shared_ptr<const fleet::View> Look(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It takes a request. `in_time`: and its steps meet the target of TPOT with that, or it has nothing to do.
  bool Takes(const fleet::Worker& worker, absl::Time now, bool in_time = true) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Expired(const WaitingChoice& waiting, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The fleet's TellNoDecodeWorker, which names all its workers in the log, once for a batch of refusals.
  absl::Status NoDecodeWorker(std::optional<absl::Status>* told);
  // Counts the refusal, and words it.
  absl::Status Refuse(admission::TenantId tenant, const admission::Refusal& refusal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The tenant's gauges; and what all tenants have left of their limits, which moves by itself.
  void Show(admission::TenantId tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowLimits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hot prefixes, and hits by worker of the fleet as it is.
  void ShowAffinity() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How busy the fleet is, with what waits here.
  void ShowLoad() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(std::vector<Delivery> deliveries);
  void TickUntilStopped();

  const Options options_;
  fleet::Fleet& fleet_;
  const Clock& clock_;
  Probe& probe_;
  index::PrefixIndex* const index_;  // null: nothing is matched
  const absl::Time started_;
  const std::string policy_name_;
  const PlacementMetrics metrics_;

  absl::Mutex mutex_;
  Placer placer_ ABSL_GUARDED_BY(mutex_);
  admission::AdmissionController admission_ ABSL_GUARDED_BY(mutex_);
  std::vector<admission::TenantId> tenants_ ABSL_GUARDED_BY(mutex_);
  WaitingChoices waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Time told_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // TellWaiting, last
  DecodePresence presence_ ABSL_GUARDED_BY(mutex_){options_.max_wait};
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> shown_waiting_{0};
  std::atomic<bool> serves_{false};  // presence_'s
  std::function<void()> serves_listener_;
  std::thread ticker_;
};

}  // namespace baton::router
