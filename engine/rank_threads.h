// RankThreads: the engine threads of a tensor-parallel group. Rank 0 is the engine's owner thread and leads:
// it calls Run, works along, and returns when all ranks are done; the others wait for the next call. With one
// rank there are no threads at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton::engine {

class RankThreads {
 public:
  explicit RankThreads(int ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int ranks() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls task(rank) once per rank, each on its own thread, all at the same time: they may wait for one
  // another. Owner thread.
  void Run(absl::FunctionRef<void(int rank)> task);

 private:
  void Work(int rank);

  const absl::FunctionRef<void(int)>* task_ = nullptr;  // of the round; null ends the threads
  std::atomic<uint32_t> round_{0};
  std::atomic<uint32_t> unfinished_{0};
  std::vector<std::thread> threads_;  // of ranks 1 and up
};

}  // namespace baton::engine
