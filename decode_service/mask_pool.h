// MaskPool: the few threads that compute the masks of answers under grammars, beside the forward pass. Work
// comes in two lanes, so that a dear grammar holds up no cheap one: the swift lane is for answers whose masks
// take microseconds, the slow one, whose threads have a lower priority, for all others. Within a lane work
// goes in the order in which it came; an answer has one piece at a time (AnswerGrammar), so answers take
// turns, and their number bounds the lanes. Any thread.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace baton::decode_service {

// The threads' priority of work that must hold up no answer: below that of the engine's, where cores
// are short.
void LowerThreadPriority();

class MaskPool {
 public:
  using Work = absl::AnyInvocable<void()>;
  enum class Lane { kSwift, kSlow };
  struct Options {
    // Threads of each lane. None of both: whoever calls RunOne does the work.
    int swift = 1;
    int slow = 1;
    // A mask is there that was not when it was asked for. From the thread that computed it.
    std::function<void()> ready = [] {};
  };

  explicit MaskPool(Options options);
  ~MaskPool() { Stop(); }

  // False: the pool has stopped, and `work` is as it was. Threads that sleep go on sleeping until Wake: a
  // step posts work for many rows, and to wake a thread costs more than most of it.
  [[nodiscard]] bool Post(Lane lane, Work& work);
  // What was posted is done from now on.
  void Wake();
  // Does what is next, swift work first. False: there is nothing.
  bool RunOne();
  void TellReady() const { options_.ready(); }
  bool has_threads() const { return options_.swift + options_.slow > 0; }
  // Drops what waits, and waits for what runs. Idempotent, not from work.
  void Stop();

 private:
  void Serve(Lane lane);
  bool& Awake(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return awake_[static_cast<size_t>(lane)]; }
  std::deque<Work>& WaitingIn(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_[static_cast<size_t>(lane)];
  }

  const Options options_;
  absl::Mutex mutex_;
  std::array<std::deque<Work>, 2> waiting_ ABSL_GUARDED_BY(mutex_);
  std::array<bool, 2> awake_ ABSL_GUARDED_BY(mutex_) = {};  // a lane, until it is empty
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::decode_service
