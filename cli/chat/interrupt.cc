#include "cli/chat/interrupt.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/check.h"

namespace baton::cli {

Interrupt::Interrupt() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  BATON_CHECK(pthread_sigmask(SIG_BLOCK, &signals, &before_) == 0);
  fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  BATON_CHECK(fd_ >= 0);
}

Interrupt::~Interrupt() {
  Take();
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool Interrupt::Take() const {
  bool any = false;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) any = true;
  return any;
}

}  // namespace baton::cli
