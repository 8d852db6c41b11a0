// HealthWatch: asks every watched process repeatedly whether it lives (grpc.health.v1,
// service "live"), and kills one that gives no answer, or asks to be replaced by NOT_SERVING (a call into
// NCCL that does not come back), so that its supervisor restarts it. A process that answers anything else, or
// closes the connection, lives. Owned by `baton serve`; its calls may come from any thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton::rpc {
class Security;
}

namespace baton::cli {

struct HealthWatchOptions {
  absl::Duration interval = absl::Seconds(5);
  // How long an answer may take; and how many in a row may be missing.
  absl::Duration patience = absl::Seconds(10);
  int chances = 3;
  // Credentials for the processes' servers; null: none are needed.
  std::shared_ptr<const rpc::Security> security;
};

class HealthWatch {
 public:
  explicit HealthWatch(const HealthWatchOptions& options);
  // Waits for questions under way.
  ~HealthWatch();

  // Watches a process from now on; it replaces the one that had this name before. `pid` is a child that has
  // not been reaped.
  void Follow(const std::string& name, pid_t pid, const std::string& address);
  // Waits for a question under way. True if the process was killed for its silence.
  bool Forget(const std::string& name);

 private:
  class Followed;

  const HealthWatchOptions options_;
  absl::Mutex mutex_;
  std::map<std::string, std::unique_ptr<Followed>> followed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::cli
