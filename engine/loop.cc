#include "engine/loop.h"

#include "absl/synchronization/notification.h"
#include "common/base/check.h"

namespace baton::engine {

void Loop::Start(std::function<bool()> step, std::function<absl::Duration()> rest) {
  BATON_CHECK(!thread_.joinable());
  thread_ = std::thread([this, step = std::move(step), rest = std::move(rest)] {
    // One step before any mail: what it publishes is the state of a worker that has had no work yet.
    bool busy = true;
    while (true) {
      // Closed is read before the mail is taken: what was posted before the close is still run.
      const bool closed = mailbox_.closed();
      const absl::Duration wait = busy ? absl::ZeroDuration() : rest();
      auto tasks = busy || closed ? mailbox_.TakeAll() : mailbox_.WaitAndTakeAll(wait);
      for (Task& task : tasks) task();
      if (closed && tasks.empty()) return;
      busy = step();
    }
  });
}

void Loop::Stop() {
  mailbox_.Close();
  if (thread_.joinable()) thread_.join();
}

bool Loop::Run(Task task) {
  absl::Notification done;
  if (!mailbox_.PostAlways([&] {
        task();
        done.Notify();
      })) {
    return false;
  }
  done.WaitForNotification();
  return true;
}

}  // namespace baton::engine
