// GrammarThreads: the few threads that work on grammars beside the forward pass. One set computes the masks
// of answers, another compiles. Work comes in two lanes, so that a dear grammar holds up no cheap one: the
// swift lane is for what takes microseconds, the slow one, whose threads have a lower priority, for all else.
// Within a lane tenants take turns, and a tenant's work goes in the order in which it came (FairLines):
// whoever has much waits for itself. Tenants are told apart by the salts of their requests. Any thread.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/fair_lines.h"

namespace baton::decode_service {

// The time that the calling thread has taken of a core so far.
absl::Duration ThreadCpuTime();

class GrammarThreads {
 public:
  using Work = absl::AnyInvocable<void()>;
  enum class Lane { kSwift, kSlow };
  struct Options {
    // Threads of each lane. None of both: whoever calls RunOne does the work.
    int swift = 1;
    int slow = 1;
    // Pieces of work that may wait in each lane (FairLines).
    size_t capacity = FairLines<Work>::kNoBound;
    // A mask is there that was not when it was asked for. From the thread that computed it.
    std::function<void()> ready = [] {};
    // The clock by which work is charged to an answer.
    std::function<absl::Duration()> cpu_time = ThreadCpuTime;
  };

  explicit GrammarThreads(Options options);
  ~GrammarThreads() { Stop(); }

  // False: the threads have stopped or the tenant's line is full, and `work` is as it was. Threads that sleep
  // go on sleeping until Wake: a step posts work for many rows, and to wake a thread costs more than most of
  // it.
  [[nodiscard]] bool Post(Lane lane, const std::string& salt, Work& work);
  // The threads begin with the work that was posted.
  void Wake();
  // Does what is next, swift work first. False: there is nothing.
  bool RunOne();
  void TellReady() const { options_.ready(); }
  absl::Duration CpuTime() const { return options_.cpu_time(); }
  bool has_threads() const { return options_.swift + options_.slow > 0; }
  // Drops what waits, and waits for what runs. Idempotent, not from work.
  void Stop();

 private:
  void Serve(Lane lane);
  bool& Awake(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return awake_[static_cast<size_t>(lane)]; }
  FairLines<Work>& WaitingIn(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_[static_cast<size_t>(lane)];
  }

  const Options options_;
  absl::Mutex mutex_;
  std::array<FairLines<Work>, 2> waiting_ ABSL_GUARDED_BY(mutex_);
  std::array<bool, 2> awake_ ABSL_GUARDED_BY(mutex_) = {};  // a lane, until it is empty
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::decode_service
