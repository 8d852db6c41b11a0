#include "router/api/live_calls.h"

#include <algorithm>

namespace baton::router {

LiveCalls::Guard::Guard(LiveCalls& calls, LiveCall& call, absl::Time deadline)
    : calls_(calls), call_(call), deadline_(deadline) {
  absl::MutexLock lock(&calls_.mutex_);
  calls_.calls_.insert(&call_);
  if (deadline_ != absl::InfiniteFuture()) calls_.deadlines_.emplace(deadline_, &call_);
}

LiveCalls::Guard::~Guard() {
  absl::MutexLock lock(&calls_.mutex_);
  calls_.calls_.erase(&call_);
  calls_.deadlines_.erase({deadline_, &call_});
  calls_.drained_.erase(&call_);
}

LiveCalls::~LiveCalls() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (watch_.joinable()) watch_.join();
}

absl::Time LiveCalls::Due() const {
  absl::Time due = deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  if (drained_.size() < calls_.size()) due = std::min(due, drain_);
  return due;
}

void LiveCalls::Watch(absl::Duration client_stall) {
  const absl::Duration period = std::clamp(client_stall / 4, absl::Milliseconds(10), absl::Seconds(1));
  watch_ = std::thread([this, period] {
    absl::Time look = clock_.Now() + period;
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        awaited_ = std::min(look, Due());
        const auto sooner = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return stopping_ || Due() < awaited_;
        };
        mutex_.AwaitWithTimeout(absl::Condition(&sooner), awaited_ - clock_.Now());
        if (stopping_) return;
      }
      EndDue();
      if (const absl::Time now = clock_.Now(); now >= look) {
        EndStalled();
        look = now + period;
      }
    }
  });
}

void LiveCalls::DrainAt(absl::Time time) {
  absl::MutexLock lock(&mutex_);
  drain_ = time;
}

void LiveCalls::EndDue() {
  Ends ends;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      ends.push_back(deadlines_.begin()->second->AtDeadline());
      deadlines_.erase(deadlines_.begin());
    }
    if (drain_ <= now) {
      for (LiveCall* call : calls_) {
        if (drained_.insert(call).second) ends.push_back(call->AtDrain());
      }
    }
  }
  for (const auto& end : ends) {
    if (end) end();
  }
}

void LiveCalls::EndStalled() {
  Ends stalled;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    for (LiveCall* call : calls_) {
      if (auto end = call->IfStalled(now)) stalled.push_back(std::move(end));
    }
  }
  for (const auto& end : stalled) end();
}

void LiveCalls::WaitUntilNone() {
  absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.Await(absl::Condition(&none));
}

}  // namespace baton::router
