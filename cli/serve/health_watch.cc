#include "cli/serve/health_watch.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "absl/synchronization/notification.h"
#include "cli/client/inference_client.h"
#include "cli/serve/child.h"

namespace baton::cli {

// One process and the thread that asks it, so that one that hangs keeps no other waiting.
class HealthWatch::Followed {
 public:
  Followed(const HealthWatchOptions& options, pid_t pid, std::string address)
      : options_(options),
        address_(std::move(address)),
        process_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))),
        cancel_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { Run(); }) {}
  ~Followed() { Stop(); }

  // Waits for a question under way. True if the process was killed.
  bool Stop() {
    if (thread_.joinable()) {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = write(cancel_.get(), &one, sizeof(one));
      stop_.Notify();
      thread_.join();
    }
    return killed_;
  }

 private:
  bool Lives(InferenceClient& client) const {
    const absl::StatusOr<bool> live = client.IsServing("live", options_.patience);
    return live.ok() ? *live : live.status().code() != absl::StatusCode::kDeadlineExceeded;
  }
  void Run() {
    std::unique_ptr<InferenceClient> client;
    int missed = 0;
    while (!stop_.WaitForNotificationWithTimeout(options_.interval)) {
      // One connection for all questions: strangers who take all others can't make a process look dead.
      if (client == nullptr) {
        auto connected =
            InferenceClient::Connect(address_, options_.patience, cancel_.get(), options_.security.get());
        if (connected.ok()) client = *std::move(connected);
      }
      missed = client != nullptr && Lives(*client) ? 0 : missed + 1;
      if (missed < options_.chances || stop_.HasBeenNotified()) continue;
      killed_ = true;
      syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
      return;
    }
  }

  const HealthWatchOptions& options_;
  const std::string address_;
  // Never another process, whatever becomes of the pid.
  const Descriptor process_;
  const Descriptor cancel_;
  absl::Notification stop_;
  bool killed_ = false;  // read once the thread has ended
  std::thread thread_;
};

HealthWatch::HealthWatch(const HealthWatchOptions& options) : options_(options) {}

HealthWatch::~HealthWatch() = default;

void HealthWatch::Follow(const std::string& name, pid_t pid, const std::string& address) {
  Forget(name);
  auto followed = std::make_unique<Followed>(options_, pid, address);
  absl::MutexLock lock(&mutex_);
  followed_[name] = std::move(followed);
}

bool HealthWatch::Forget(const std::string& name) {
  std::unique_ptr<Followed> gone;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = followed_.find(name);
    if (found == followed_.end()) return false;
    gone = std::move(found->second);
    followed_.erase(found);
  }
  return gone->Stop();
}

}  // namespace baton::cli
