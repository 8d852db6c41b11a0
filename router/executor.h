// Executor: the few threads that render templates and tokenize, so that gRPC's never do. Bounded: a full
// executor refuses (TryRun returns false) and the caller answers RESOURCE_EXHAUSTED. Any thread.
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
  Executor(int threads, size_t capacity);
  // Runs what was taken in, then ends.
  ~Executor();

  [[nodiscard]] bool TryRun(std::function<void()> work);

 private:
  void Work();

  const size_t capacity_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::router
