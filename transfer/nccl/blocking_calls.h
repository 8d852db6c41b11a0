// BlockingCalls: calls that may block for seconds, each on a thread of its own, and how long the oldest has
// been running. They don't stand in line: an abort may wait for the kernel of another communicator, which
// ends only when that one's abort, asked for later, has begun. How many run at once is for the caller to
// bound.
#pragma once

#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton::transfer {

class BlockingCalls {
 public:
  // `clock` outlives it.
  explicit BlockingCalls(const Clock& clock) : clock_(clock) {}
  // Waits for all calls.
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  // Begins a call. Any thread, a call's own included.
  void Run(absl::AnyInvocable<void()> call);
  // How many calls are in progress. Any thread.
  int64_t InProgress() const;
  // How long the oldest call in progress has been running; zero without any. Any thread.
  absl::Duration Oldest() const;
  // Waits until no call is in progress, for at most `max` of the machine's time; false if one still is. Not
  // from a call.
  bool AwaitIdle(absl::Duration max);

 private:
  struct Call {
    absl::Time since;
    std::thread thread;
  };

  const Clock& clock_;
  mutable absl::Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Call> running_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> ended_ ABSL_GUARDED_BY(mutex_);  // to be joined
};

}  // namespace baton::transfer
