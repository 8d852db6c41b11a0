#include "engine/rank_threads.h"

#include "common/base/check.h"

namespace baton::engine {

RankThreads::RankThreads(int ranks) {
  BATON_CHECK(ranks >= 1);
  for (int rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { Work(rank); });
}

RankThreads::~RankThreads() {
  task_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::Run(absl::FunctionRef<void(int rank)> task) {
  task_ = &task;
  unfinished_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  task(0);
  for (uint32_t left; (left = unfinished_.load(std::memory_order_acquire)) != 0;) unfinished_.wait(left);
}

void RankThreads::Work(int rank) {
  for (uint32_t seen = 0;; ++seen) {
    // A round ends only when all ranks have finished it, so none is ever missed.
    round_.wait(seen, std::memory_order_acquire);
    if (task_ == nullptr) return;
    (*task_)(rank);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

}  // namespace baton::engine
