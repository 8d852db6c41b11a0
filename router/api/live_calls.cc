#include "router/api/live_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace baton::router {

LiveCalls::Guard::Guard(LiveCalls& calls, LiveCall& call) : calls_(calls), call_(call) {
  absl::MutexLock lock(&calls_.mutex_);
  calls_.calls_.insert(&call_);
}

LiveCalls::Guard::~Guard() {
  absl::MutexLock lock(&calls_.mutex_);
  calls_.calls_.erase(&call_);
}

LiveCalls::~LiveCalls() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (watch_.joinable()) watch_.join();
}

void LiveCalls::Watch(absl::Duration client_stall) {
  const absl::Duration period = std::clamp(client_stall / 4, absl::Milliseconds(10), absl::Seconds(1));
  watch_ = std::thread([this, period] {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), period)) return;
      }
      EndStalled();
    }
  });
}

void LiveCalls::EndStalled() {
  std::vector<std::function<void()>> stalled;
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
