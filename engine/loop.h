// Loop: the owner thread of an engine and everything that hangs on it. Others post tasks to its bounded
// mailbox; it runs them in order, then does one step of work, for as long as there is any, and waits
// otherwise.
#pragma once

#include <functional>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "common/base/mailbox.h"

namespace baton::engine {

class Loop {
 public:
  using Task = absl::AnyInvocable<void()>;

  // Tasks waiting at once before TryPost refuses.
  explicit Loop(size_t capacity) : mailbox_(capacity) {}
  ~Loop() { Stop(); }

  // Starts the thread. step() does one piece of work and says whether there is more to do at once; if not,
  // rest() is called before the thread waits for mail, and says for how long at most.
  void Start(
      std::function<bool()> step,
      std::function<absl::Duration()> rest = [] { return absl::InfiniteDuration(); });
  // Runs what was posted, then ends the thread. Any thread but the loop's own; idempotent.
  void Stop();

  // Any thread. False when full or stopped: the caller refuses the work (RESOURCE_EXHAUSTED).
  [[nodiscard]] bool TryPost(Task task) { return mailbox_.TryPost(std::move(task)); }
  // Any thread. For releases, cancels and answers to what was admitted. False only when stopped.
  bool PostAlways(Task task) { return mailbox_.PostAlways(std::move(task)); }
  // Runs `task` on the loop and waits for it. Any thread but the loop's own; for start-up, tests and
  // shutdown.
  bool Run(Task task);

 private:
  Mailbox<Task> mailbox_;
  std::thread thread_;
};

}  // namespace baton::engine
