// WorkerHits: for each worker, the prompt tokens that this router placed there, those of them that it
// expected to be cached there, and those that were: three counters for each worker that the fleet has now, so
// their number is bounded by the fleet and not by its history. In fleets of more than kMaxWorkers workers
// there are none: pools have their own sums (Probe::Predicted). Any thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/telemetry/metrics.h"

namespace baton::router {

class WorkerHits {
 public:
  static constexpr size_t kMaxWorkers = 512;
  // Worker id and pool ("decode", "prefill").
  using Name = std::pair<std::string, std::string>;

  explicit WorkerHits(telemetry::Metrics& metrics);

  // Placed there, `predicted` of the prompt's tokens cached.
  void Placed(const Name& worker, int64_t prompt, int64_t predicted) ABSL_LOCKS_EXCLUDED(mutex_);
  // It had so many of them.
  void Found(const Name& worker, int64_t cached) ABSL_LOCKS_EXCLUDED(mutex_);
  // The fleet as it is: who is not in it is no longer shown.
  void Keep(const std::vector<Name>& workers) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Counters {
    prometheus::Counter* prompt;
    prometheus::Counter* predicted;
    prometheus::Counter* found;
  };
  using Family = prometheus::Family<prometheus::Counter>;

  // Null: too many.
  const Counters* Of(const Name& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The fleet's. The families are those of all fleets, which may have workers of one name.
  const prometheus::Labels labels_;
  Family& prompt_;
  Family& predicted_;
  Family& found_;
  absl::Mutex mutex_;
  std::map<Name, Counters> workers_ ABSL_GUARDED_BY(mutex_);
  bool too_many_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::router
