#include "common/engine/loop.h"

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/base/time_slice.h"

namespace baton::engine {

void Loop::Start(std::function<bool()> step) {
  BATON_CHECK(!thread_.joinable());
  thread_ = std::thread([this, step = std::move(step)] {
    SetTimeSlice(absl::ZeroDuration());
    // One step before any mail: what it publishes is the state of a worker that has had no work yet.
    bool busy = true;
    while (true) {
      // Closed is read before the mail is taken: what was posted before the close is still run.
      const bool closed = mailbox_.closed();
      auto tasks = busy || closed ? mailbox_.TakeAll() : mailbox_.WaitAndTakeAll(absl::InfiniteDuration());
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
