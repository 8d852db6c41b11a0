#include "router/executor.h"

#include <utility>

namespace baton::router {

Executor::Executor(int threads, size_t capacity) : capacity_(capacity) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool Executor::TryRun(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (closed_ || waiting_.size() >= capacity_) return false;
  waiting_.push_back(std::move(work));
  return true;
}

void Executor::Work() {
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      const auto needed = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !waiting_.empty(); };
      mutex_.Await(absl::Condition(&needed));
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace baton::router
