// HealthWatch: asks every process that is followed, again and again, whether it lives (grpc.health.v1,
// service "live"), and kills one that gives no answer, so that whoever supervises it starts it again. A
// process that answers anything, or closes the connection, lives. Owned by `baton serve`; its calls may come
// from any thread.
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
  // For an answer; and how often in a row it may fail to come.
  absl::Duration patience = absl::Seconds(10);
  int chances = 3;
  // What the processes' servers ask of us; null: nothing.
  std::shared_ptr<const rpc::Security> security;
};

class HealthWatch {
 public:
  explicit HealthWatch(const HealthWatchOptions& options);
  // Waits for questions under way.
  ~HealthWatch();

  // From now on; in place of what had that name before. `pid` is a child that has not been reaped.
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
