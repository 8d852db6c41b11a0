// Executor: the few threads that parse large messages, render templates and tokenize, so that gRPC's never
// do. Jobs wait in lines, by tenant and by size; the line that has had the least work, in bytes, goes next,
// so neither a tenant nor large texts hold up the others' short ones, and no line starves. Of several threads
// one is never given a large job. A job whose call is over is dropped before it begins.
//
// Grammars have an executor of their own (router.cc): one of them takes up to 200 ms, whatever its bytes.
//
// The jobs that wait or run are bounded in number and in bytes, and no tenant may have more of either than is
// left free, so there is always room for a tenant that has no job here. A job that does not fit is refused
// (TrySubmit returns false) and the caller answers RESOURCE_EXHAUSTED. Owned by Router; any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "router/admission/tenant_limits.h"

namespace baton::router {

class Executor {
 public:
  struct Options {
    int threads = 2;
    // Jobs, and the bytes of their messages, that may be here. A job that comes to an empty executor is taken
    // whatever its size.
    size_t capacity = 8192;
    size_t capacity_bytes = size_t{256} << 20;
    const Clock* clock = nullptr;
    // The reason in a refused call's error.
    const char* what = "prompts wait to be tokenized";
    // Called for each job that was not done, or not to its end, because its call was over. May be null.
    std::function<void()> dropped;
  };
  struct Job {
    admission::TenantId tenant;
    // Size of the job's message; its work is proportional to it.
    size_t bytes = 0;
    // The measure of its work, if not its bytes.
    std::optional<size_t> weight = {};
    // False once no client waits for the result; a job may ask during its work too.
    std::function<bool()> wanted;
    // False: it ended early because it isn't wanted any more.
    std::function<bool()> work;
    // In place of `work` when it isn't wanted any more.
    std::function<void()> drop;
  };
  // A job of more bytes is large.
  static constexpr size_t kLargeBytes = 64 << 10;

  explicit Executor(Options options);
  // Runs what was taken in, then ends.
  ~Executor();

  [[nodiscard]] bool TrySubmit(Job job);
  // The error of a refused call: RESOURCE_EXHAUSTED, with the time that the present jobs take at the pace so
  // far as the retry delay.
  absl::Status Full() const;
  // How long its threads have been at work so far, all together.
  absl::Duration Busy() const;

 private:
  using LineId = std::pair<bool, admission::TenantId>;  // large or not, and whose
  // Start-time fair queuing (Goyal, Vin and Cheng, "Start-time fair queuing", SIGCOMM 1996): the scale stands
  // where the line that went last began.
  struct Line {
    std::deque<Job> jobs;
    uint64_t had = 0;  // bytes of work, on a scale that all lines share
  };
  using Turns = std::set<std::pair<uint64_t, LineId>>;
  // Waiting and running.
  struct Held {
    size_t jobs = 0;
    size_t bytes = 0;
  };

  void Work();
  // Until a job may start or this ends. False: neither within `patience`.
  bool Await(absl::Duration patience) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does it, or drops it, and gives back what it held.
  void Do(Job job);
  // The line that goes next, of those that this moment allows.
  Turns::const_iterator Next() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayStart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Next() != turns_.end(); }
  Job Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  std::map<LineId, Line> lines_ ABSL_GUARDED_BY(mutex_);  // of every tenant that was ever here
  Turns turns_ ABSL_GUARDED_BY(mutex_);                   // lines with jobs, by what they have had
  uint64_t scale_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<admission::TenantId, Held> held_ ABSL_GUARDED_BY(mutex_);
  Held all_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  int large_running_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t untrimmed_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of large jobs since memory was last given back
  absl::Duration busy_ ABSL_GUARDED_BY(mutex_);
  double seconds_per_byte_ ABSL_GUARDED_BY(mutex_) = 1e-6;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::router
