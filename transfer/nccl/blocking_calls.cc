#include "transfer/nccl/blocking_calls.h"

#include <iterator>
#include <utility>

namespace baton::transfer {

BlockingCalls::~BlockingCalls() {
  AwaitIdle(absl::InfiniteDuration());
  for (std::thread& thread : ended_) thread.join();
}

void BlockingCalls::Run(absl::AnyInvocable<void()> call) {
  std::vector<std::thread> ended;
  {
    absl::MutexLock lock(&mutex_);
    ended.swap(ended_);
    const uint64_t number = next_++;
    Call& entry = running_[number];
    entry.since = clock_.Now();
    entry.thread = std::thread([this, number, call = std::move(call)]() mutable {
      call();
      call = nullptr;
      absl::MutexLock done(&mutex_);
      const auto self = running_.find(number);
      ended_.push_back(std::move(self->second.thread));
      running_.erase(self);
    });
  }
  for (std::thread& thread : ended) thread.join();
}

int64_t BlockingCalls::InProgress() const {
  absl::MutexLock lock(&mutex_);
  return std::ssize(running_);
}

absl::Duration BlockingCalls::Oldest() const {
  absl::MutexLock lock(&mutex_);
  return running_.empty() ? absl::ZeroDuration() : clock_.Now() - running_.begin()->second.since;
}

bool BlockingCalls::AwaitIdle(absl::Duration max) {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), max);
}

}  // namespace baton::transfer
