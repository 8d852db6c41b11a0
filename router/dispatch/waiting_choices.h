// WaitingChoices: the choices that wait for a decode worker, by their place in the admission queue, and
// which of them may no longer be held back. Plain bookkeeping: its owner has the lock and the clock.
#pragma once

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "router/admission/queue.h"
#include "router/admission/refusal.h"
#include "router/dispatch/dispatch_request.h"

namespace baton::router {

struct WaitingChoice {
  std::shared_ptr<const DispatchRequest> request;
  int choice = 0;
  std::vector<Incarnation> avoid;  // workers that failed it
  bool begun = false;              // its answer goes on from where it was
  bool patient = false;            // it waited for a worker to come: it is not too late for what was due
  absl::Time came;                 // when it began to wait
  absl::Time expires;              // the longest wait, or what is too late for the first token
  absl::Duration ttft;             // on a worker without a queue, as predicted when it came; 0: not known

  // From then on it goes to a worker whose steps it makes longer than the target of TPOT: at once if its
  // answer has begun, shortly before its own deadline could not be met any more; never if it has none.
  absl::Time presses() const;
};

// A choice whose wait is over without a worker: of its own deadline, of the time that the first token of a
// request without one may take, or of all that it may wait.
admission::Refusal WhyExpired(const WaitingChoice& waiting, absl::Time now, absl::Duration max_wait,
                              absl::Duration default_ttft, absl::Duration retry);

class WaitingChoices {
 public:
  void Add(admission::EntryId id, WaitingChoice waiting);
  const WaitingChoice& at(admission::EntryId id) const { return choices_.at(id); }
  WaitingChoice Take(admission::EntryId id);
  // A choice that nobody could take waits on, whatever was due: until its client's deadline, and as long as
  // any may, `max_wait`. False: that is over, and nothing has changed.
  bool WaitOn(admission::EntryId id, absl::Time now, absl::Duration max_wait);
  // Somebody wants to know how one of them stands.
  bool told() const { return told_ > 0; }
  // The ids of choices that press by now, the first to press first.
  std::vector<admission::EntryId> Pressing(absl::Time now) const;

 private:
  absl::flat_hash_map<admission::EntryId, WaitingChoice> choices_;
  int64_t told_ = 0;                                              // those that are
  std::set<std::pair<absl::Time, admission::EntryId>> pressing_;  // those that ever do
};

}  // namespace baton::router
