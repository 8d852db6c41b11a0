// LiveCalls: the requests that have not ended. Shutdown waits for the last of them. One thread ends those
// whose deadline has come, those that a draining router can't wait for any longer and, a few times per
// `client_stall`, those whose client stopped reading (RequestFlow): what the request used can be told then,
// as it can't once gRPC has ended the call by itself. Any thread.
#pragma once

#include <functional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton::router {

class LiveCall {
 public:
  // Each returns how to end the call, to be called when no lock is held, which keeps what it needs; or
  // nothing. May be asked while the call is being destroyed.
  //
  // The client has not taken a message for too long, if it has not.
  virtual std::function<void()> IfStalled(absl::Time now) = 0;
  // Its deadline has come.
  virtual std::function<void()> AtDeadline() = 0;
  // The router is leaving.
  virtual std::function<void()> AtDrain() = 0;

 protected:
  ~LiveCall() = default;
};

class LiveCalls {
 public:
  explicit LiveCalls(const Clock& clock) : clock_(clock) {}
  ~LiveCalls();

  // Registers a call for as long as the guard exists.
  class Guard {
   public:
    Guard(LiveCalls& calls, LiveCall& call, absl::Time deadline = absl::InfiniteFuture());
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    LiveCalls& calls_;
    LiveCall& call_;
    const absl::Time deadline_;
  };

  // Starts the thread, which looks for stalled clients a few times per `client_stall`.
  void Watch(absl::Duration client_stall);
  // Ends all calls at that time, and those that come later when they come.
  void DrainAt(absl::Time time);
  // Ends what is to be ended now. Tests without a thread call it.
  void EndDue();
  void WaitUntilNone();

 private:
  using Ends = std::vector<std::function<void()>>;

  // When something is to be done next, stalled clients aside.
  absl::Time Due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndStalled();

  const Clock& clock_;
  absl::Mutex mutex_;
  absl::flat_hash_set<LiveCall*> calls_ ABSL_GUARDED_BY(mutex_);
  // By time, without those that were ended by it.
  std::set<std::pair<absl::Time, LiveCall*>> deadlines_ ABSL_GUARDED_BY(mutex_);
  absl::Time drain_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::flat_hash_set<LiveCall*> drained_ ABSL_GUARDED_BY(mutex_);
  absl::Time awaited_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // what the thread sleeps for
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

}  // namespace baton::router
