// LoadReport: how much of this router is in use, as clients hear it that choose among routers
// (weighted_round_robin; ORCA, gRPC proposals A51 and A58). It counts the answers that end and looks at the
// process once a second, when one does: an idle router tells nothing. One per router; any thread.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton::router {

class LoadReport {
 public:
  struct Sample {
    absl::Duration cpu;   // of the process, since it began
    absl::Duration busy;  // the same of the executor's threads, all together
    double kv_used = 0;   // share of the decode workers' blocks
    int64_t waiting = 0;  // choices
  };
  struct Options {
    int cores = 1;    // that the process may use
    int threads = 1;  // of the executor
    // Now. Called on a thread on which a call ends.
    std::function<Sample()> sample;
  };
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  // The clock outlives it.
  LoadReport(Options options, const Clock& clock);

  // An answer that a worker had begun to compute has ended so. Returns the report of the last period, as it
  // goes on the wire; empty: none is over yet.
  std::string OnEnded(const absl::Status& status);

 private:
  const Options options_;
  const Clock& clock_;
  absl::Mutex mutex_;
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  Sample before_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string report_ ABSL_GUARDED_BY(mutex_);
};

// The CPU time that this process has used.
absl::Duration ProcessCpu();

// Puts what OnEnded returned into the call's trailing metadata, before it is finished.
void AddLoad(const std::string& report, grpc::ServerContextBase* context);

inline constexpr char kLoadTrailer[] = "endpoint-load-metrics-bin";

}  // namespace baton::router
