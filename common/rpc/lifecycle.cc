#include "common/rpc/lifecycle.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/rpc/grpc_log.h"
#include "common/telemetry/process.h"

namespace baton::rpc {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// spdlog's own sink does not look whether a line was written. Standard error has no buffer: a failed write
// leaves its mark at once.
class StderrSink final : public spdlog::sinks::ansicolor_stderr_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    absl::MutexLock lock(&mutex_);
    spdlog::sinks::ansicolor_stderr_sink_mt::log(message);
    if (std::ferror(stderr) == 0) return;
    std::clearerr(stderr);
    telemetry::CountLostLogLine();
  }

 private:
  absl::Mutex mutex_;
};

}  // namespace

absl::Status SetUpLogging(const std::string& role, const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown log level \"", level, "\": use debug, info, warn, error or off"));
  }
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(role, std::make_shared<StderrSink>()));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %n: %v");
  spdlog::set_level(parsed);
  RouteGrpcLog();
  return absl::OkStatus();
}

void SkipLockOrderChecks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

void PrepareStandardStreams() {
  std::signal(SIGPIPE, SIG_IGN);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is this one. Nothing can be written to what is open for reading only.
    if (fcntl(fd, F_GETFD) < 0) BATON_CHECK(open("/dev/null", O_RDONLY) == fd);
  }
}

void CatchStopSignals() {
  PrepareStandardStreams();
  const sigset_t signals = StopSignals();
  BATON_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
}

void WaitForStop(bool until_input_ends) {
  const sigset_t signals = StopSignals();
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  BATON_CHECK(signal_fd >= 0);
  pollfd fds[2] = {{signal_fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  nfds_t count = until_input_ends ? 2 : 1;
  while (true) {
    if (poll(fds, count, -1) < 0) continue;
    if (fds[0].revents != 0) break;
    if (count == 2 && fds[1].revents != 0) {
      char drop[256];
      if (read(STDIN_FILENO, drop, sizeof(drop)) <= 0) break;
    }
  }
  close(signal_fd);
}

void AnnounceReady(const std::vector<std::pair<std::string, std::string>>& addresses) {
  std::string line = "ready";
  for (const auto& [name, address] : addresses) {
    if (!address.empty()) absl::StrAppend(&line, " ", name, "=", address);
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace baton::rpc
