#include "router/executor.h"

#include <utility>

#include "common/base/time_slice.h"

namespace baton::router {

Executor::Executor(int threads, size_t capacity, size_t capacity_bytes)
    : capacity_(capacity), capacity_bytes_(capacity_bytes) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool Executor::TryRun(size_t bytes, std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (closed_ || waiting_.size() >= capacity_) return false;
  if (!waiting_.empty() && bytes_ + bytes > capacity_bytes_) return false;
  bytes_ += bytes;
  waiting_.push_back({.bytes = bytes, .work = std::move(work)});
  return true;
}

void Executor::Work() {
  SetTimeSlice(absl::ZeroDuration());  // templates and tokenizers compute
  while (true) {
    Piece piece;
    {
      absl::MutexLock lock(&mutex_);
      const auto needed = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !waiting_.empty(); };
      mutex_.Await(absl::Condition(&needed));
      if (waiting_.empty()) return;
      piece = std::move(waiting_.front());
      waiting_.pop_front();
      bytes_ -= piece.bytes;
    }
    piece.work();
  }
}

}  // namespace baton::router
