// ThreadPool: the cores that one engine computes on. It runs a fixed list of tasks and returns when all are
// done; which thread takes which task is left to chance, so a task writes only what is its own and nothing is
// ever summed up across tasks: results can't depend on the number of threads. One owner thread calls
// ParallelFor and works along; it refuses calls from inside a task. Idle threads spin for some microseconds,
// then sleep. A pool over a share of cores has a thread for each core of the machine, and uses those that the
// share has at that moment: a thread on a borrowed core stops between two tasks when the core's owner works.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/device/core_share.h"

namespace baton::device {

// Cores that this process may use: its affinity mask, cut by the CPU quota of its cgroup. At least 1.
int UsableCores();

class ThreadPool {
 public:
  // `threads` counts the owner in; at least 1.
  explicit ThreadPool(int threads);
  // As many as the share has cores, borrowed ones counted in. The share outlives the pool.
  explicit ThreadPool(CoreShare& share);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The most that may work at once.
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i) once for every i in [0, count), on any thread, beginning with the low ones. Whatever the
  // tasks wrote is visible on return.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> task);
  // The same in another order: threads that are equally fast have a range of [0, count) each, from its low
  // end on. For tasks that stream neighbouring memory.
  void ParallelRanges(int64_t count, absl::FunctionRef<void(int64_t)> task);

 private:
  using Task = absl::FunctionRef<void(int64_t)>;

  void Work();
  // On foreign core `i`, for rounds that it is called to.
  void WorkBorrowed(int i);
  // Runs tasks of the round in `cursor_` until none is left, or go_on() says no.
  template <typename Condition>
  void RunTasks(const Condition& go_on);

  // One round of tasks. task_ and count_ are written by the owner before the round opens and read only by a
  // thread that has just won a task of it: the round can't end before that task does.
  const Task* task_ = nullptr;
  int64_t count_ = 0;
  // Number of the round in the upper half, tasks not yet taken in the lower: one word, so that a thread that
  // slept through a round can't take a task of the next one by mistake.
  alignas(64) std::atomic<uint64_t> cursor_{0};
  alignas(64) std::atomic<int64_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> round_{0};  // what idle threads wait on
  std::atomic<bool> stopping_{false};
  CoreShare* const share_;  // null: all cores are this pool's own
  // The last round that the thread of each foreign core was called to.
  struct alignas(64) Call {
    std::atomic<uint32_t> round{0};
  };
  std::vector<Call> calls_;
  std::vector<std::thread> workers_;
};

}  // namespace baton::device
