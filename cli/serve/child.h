// Child: one process of a supervisor, started with its three standard streams as pipes. When the parent dies,
// however that happens, the child ends too: its standard input closes, and the kernel kills it
// (PR_SET_PDEATHSIG, which follows the *thread* that calls Spawn, so that thread must live as long as the
// child should). One thread at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::cli {

// How a process ended.
struct ExitStatus {
  bool signalled = false;
  // Exit code, or the number of the signal.
  int value = 0;

  // "exit code 1", "killed by SIGKILL".
  std::string Describe() const;
};

// A file descriptor with an owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  void Reset();

 private:
  int fd_ = -1;
};

class Child {
 public:
  // NOT_FOUND or PERMISSION_DENIED if `program` can't be run. Signals are unblocked and at their defaults in
  // the child, which leads a process group of its own: a Ctrl-C in the terminal reaches only the supervisor.
  static absl::StatusOr<Child> Spawn(const std::string& program, const std::vector<std::string>& arguments);
  Child(Child&&) = default;
  Child& operator=(Child&&) = default;
  // Kills and reaps what still runs.
  ~Child();

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int ended_fd() const { return pidfd_.get(); }
  // Non-blocking read ends.
  int output_fd() const { return output_.get(); }
  int error_fd() const { return error_.get(); }

  void Signal(int signal);
  // The end of the process, once. Empty while it runs.
  std::optional<ExitStatus> Reap();

 private:
  Child() = default;

  // Not running once pidfd_ is closed.
  pid_t pid_ = 0;
  Descriptor pidfd_;
  Descriptor input_;
  Descriptor output_;
  Descriptor error_;
};

}  // namespace baton::cli
