// Interrupt: Ctrl-C as something to wait for. While one exists, SIGINT is held back from the process and
// makes fd() readable instead. Make it before the first thread starts, or a thread that doesn't hold the
// signal back would die of it. One at a time, main thread.
#pragma once

#include <csignal>

namespace baton::cli {

class Interrupt {
 public:
  Interrupt();
  // Ctrl-C ends the process again.
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  int fd() const { return fd_; }
  // True if there was one since the last call.
  bool Take() const;

 private:
  sigset_t before_;
  int fd_;
};

}  // namespace baton::cli
