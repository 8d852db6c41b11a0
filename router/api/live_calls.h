// LiveCalls: the requests that have not ended. Shutdown waits for the last of them, and one thread looks at
// all of them a few times per `client_stall`, to end those whose client stopped reading (RequestFlow). Any
// thread.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton::router {

class LiveCall {
 public:
  // What to do about a client that has not taken a message for too long; empty if it has. It is called when
  // no lock is held, and keeps what it needs. May be asked while the call is being destroyed.
  virtual std::function<void()> IfStalled(absl::Time now) = 0;

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
    Guard(LiveCalls& calls, LiveCall& call);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    LiveCalls& calls_;
    LiveCall& call_;
  };

  // Looks for stalled clients a few times per `client_stall`, on a thread of its own, from now on.
  void Watch(absl::Duration client_stall);
  void WaitUntilNone();

 private:
  void EndStalled();

  const Clock& clock_;
  absl::Mutex mutex_;
  absl::flat_hash_set<LiveCall*> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

}  // namespace baton::router
