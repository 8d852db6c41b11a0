#include "common/base/clock.h"

#include <chrono>

namespace baton {

absl::Time MonotonicClock::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

absl::Time FakeClock::Now() const {
  absl::MutexLock lock(&mutex_);
  return now_;
}

void FakeClock::Advance(absl::Duration by) {
  absl::MutexLock lock(&mutex_);
  now_ += by;
}

}  // namespace baton
