#include "engine/device/thread_pool.h"

#include <chrono>
#include <limits>

#include "common/base/check.h"
#include "common/base/cores.h"

namespace baton::device {
namespace {

// Longer than the gap between two operations of a forward pass, far shorter than one between two steps.
constexpr std::chrono::microseconds kSpin{30};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done` holds or the time is over.
template <typename Condition>
bool SpinUntil(const Condition& done) {
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  return false;
}

}  // namespace

int UsableCores() { return baton::UsableCores(); }

ThreadPool::ThreadPool(int threads) : share_(nullptr) {
  BATON_CHECK(threads >= 1) << " threads " << threads;
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::ThreadPool(CoreShare& share) : share_(&share), calls_(static_cast<size_t>(share.foreign())) {
  for (int i = 1; i < share.home(); ++i) workers_.emplace_back([this] { Work(); });
  for (int i = 0; i < share.foreign(); ++i) workers_.emplace_back([this, i] { WorkBorrowed(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  const uint32_t last = round_.fetch_add(1, std::memory_order_release) + 1;
  round_.notify_all();
  for (Call& call : calls_) {
    call.round.store(last, std::memory_order_release);
    call.round.notify_one();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> task) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  BATON_CHECK(count <= std::numeric_limits<uint32_t>::max()) << " tasks " << count;
  BATON_CHECK_EQ(unfinished_.load(std::memory_order_relaxed), 0) << "called from inside a task";
  task_ = &task;
  count_ = count;
  unfinished_.store(count, std::memory_order_relaxed);
  const uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  cursor_.store(uint64_t{round} << 32 | static_cast<uint64_t>(count), std::memory_order_release);
  round_.store(round, std::memory_order_release);
  round_.notify_all();
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (!share_->Borrow(static_cast<int>(i))) continue;
    calls_[i].round.store(round, std::memory_order_release);
    calls_[i].round.notify_one();
  }
  RunTasks([] { return true; });
  const auto finished = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (SpinUntil(finished)) return;
  for (int64_t left; (left = unfinished_.load(std::memory_order_acquire)) != 0;) unfinished_.wait(left);
}

void ThreadPool::ParallelRanges(int64_t count, absl::FunctionRef<void(int64_t)> task) {
  // Claims come one after the other: each goes to another range than the one before.
  const int64_t ranges = threads(), length = (count + ranges - 1) / ranges;
  ParallelFor(ranges * length, [&](int64_t claim) {
    const int64_t i = claim % ranges * length + claim / ranges;
    if (i < count) task(i);
  });
}

template <typename Condition>
void ThreadPool::RunTasks(const Condition& go_on) {
  uint64_t cursor = cursor_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(cursor) != 0 && go_on()) {
    if (!cursor_.compare_exchange_weak(cursor, cursor - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    (*task_)(count_ - static_cast<uint32_t>(cursor));
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    cursor = cursor_.load(std::memory_order_acquire);
  }
}

void ThreadPool::Work() {
  uint32_t seen = 0;
  for (;;) {
    const auto called = [&] { return round_.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(called)) round_.wait(seen);
    seen = round_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    RunTasks([] { return true; });
  }
}

void ThreadPool::WorkBorrowed(int i) {
  std::atomic<uint32_t>& round = calls_[static_cast<size_t>(i)].round;
  const auto keeps = [this, i] { return share_->Keep(i); };
  uint32_t seen = 0;
  for (;;) {
    // A core that was given back is not spun on.
    const auto called = [&] { return round.load(std::memory_order_acquire) != seen; };
    if (!keeps() || !SpinUntil(called)) round.wait(seen);
    seen = round.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    RunTasks(keeps);
  }
}

}  // namespace baton::device
