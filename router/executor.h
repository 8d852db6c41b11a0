// Executor: the few threads that render templates and tokenize, so that gRPC's never do. Bounded in pieces of
// work and in bytes that wait with them: a full executor refuses (TryRun returns false) and the caller
// answers RESOURCE_EXHAUSTED. Any thread.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::router {

class Executor {
 public:
  Executor(int threads, size_t capacity, size_t capacity_bytes);
  // Runs what was taken in, then ends.
  ~Executor();

  // `bytes` are what the work holds while it waits. One piece is taken whatever its size.
  [[nodiscard]] bool TryRun(size_t bytes, std::function<void()> work);

 private:
  struct Piece {
    size_t bytes = 0;
    std::function<void()> work;
  };
  void Work();

  const size_t capacity_;
  const size_t capacity_bytes_;
  absl::Mutex mutex_;
  std::deque<Piece> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::router
