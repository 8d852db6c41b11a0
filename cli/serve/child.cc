#include "cli/serve/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::cli {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

// Close-on-exec, so that no child holds another's standard input open past its parent's death.
absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "can't make a pipe");
  return Pipe{Descriptor(fds[0]), Descriptor(fds[1])};
}

// glibc 2.36 declares pidfd_open and its kin without C linkage, so C++ can't link them. Close-on-exec by
// itself.
int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeProgram(pid_t parent, const Pipe& in, const Pipe& out, const Pipe& err,
                                int failure_fd, const char* program, char* const* arguments) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(in.read.get(), STDIN_FILENO) >= 0 && dup2(out.write.get(), STDOUT_FILENO) >= 0 &&
      dup2(err.write.get(), STDERR_FILENO) >= 0) {
    execv(program, arguments);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failure_fd, &error, sizeof(error));
  _exit(127);
}

}  // namespace

std::string ExitStatus::Describe() const {
  if (!signalled) return fmt::format("exit code {}", value);
  const char* name = sigabbrev_np(value);
  return name != nullptr ? fmt::format("killed by SIG{}", name) : fmt::format("killed by signal {}", value);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

void Descriptor::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<Child> Child::Spawn(const std::string& program, const std::vector<std::string>& arguments) {
  BATON_ASSIGN_OR_RETURN(Pipe in, MakePipe());
  BATON_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  BATON_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  BATON_ASSIGN_OR_RETURN(Pipe failure, MakePipe());
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "can't start a process");
  if (pid == 0) BecomeProgram(parent, in, out, err, failure.write.get(), program.c_str(), argv.data());
  failure.write.Reset();
  int error = 0;
  ssize_t got;
  do {
    got = read(failure.read.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(error))) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
    return absl::ErrnoToStatus(error, fmt::format("can't run {}", program));
  }
  Child child;
  child.pid_ = pid;
  child.pidfd_ = Descriptor(OpenPidfd(pid));
  BATON_CHECK(child.pidfd_.get() >= 0) << "pidfd_open: " << errno;
  child.input_ = std::move(in.write);
  child.output_ = std::move(out.read);
  child.error_ = std::move(err.read);
  for (const int fd : {child.output_.get(), child.error_.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  return child;
}

Child::~Child() {
  if (pidfd_.get() < 0) return;
  Signal(SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void Child::Signal(int signal) {
  // By pidfd: a reaped process's id may be another's by now.
  if (pidfd_.get() >= 0) syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
}

std::optional<ExitStatus> Child::Reap() {
  if (pidfd_.get() < 0) return std::nullopt;
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended != pid_) return std::nullopt;
  pidfd_.Reset();
  if (WIFSIGNALED(status)) return ExitStatus{true, WTERMSIG(status)};
  return ExitStatus{false, WEXITSTATUS(status)};
}

}  // namespace baton::cli
