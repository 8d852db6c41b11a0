// Clock: time as a dependency. Services take one; tests move a FakeClock by hand.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton {

// Monotonic: durations between two readings are meaningful, the readings themselves are not.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// Any thread.
class MonotonicClock final : public Clock {
 public:
  absl::Time Now() const override;
};

// Any thread.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}
  absl::Time Now() const override;
  void Advance(absl::Duration by);

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
