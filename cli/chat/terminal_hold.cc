#include "cli/chat/terminal_hold.h"

#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "common/base/check.h"

namespace baton::cli {
namespace {

// Bracketed paste, as xterm has it: pasted text comes between ESC [ 2 0 0 ~ and ESC [ 2 0 1 ~.
constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";
constexpr std::array<int, 5> kSignals = {SIGTSTP, SIGHUP, SIGQUIT, SIGTERM, SIGWINCH};

// State that the signal handler reaches.
struct State {
  int fd = -1;
  termios before{};
  std::array<struct sigaction, kSignals.size()> actions{};
  volatile std::sig_atomic_t resumed = 0;
  volatile std::sig_atomic_t resized = 0;
};
State state;

void Write(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(state.fd, text.data(), text.size());
}

// Async-signal-safe, as everything here.
void OnSignal(int signal) {
  if (signal == SIGWINCH) {
    state.resized = 1;
    return;
  }
  const int error = errno;
  termios held;
  const bool known = tcgetattr(state.fd, &held) == 0;
  Write(kPasteOff);
  tcsetattr(state.fd, TCSANOW, &state.before);
  if (signal != SIGTSTP) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // comes when the handler returns
    return;
  }
  raise(SIGSTOP);
  // Back in the foreground.
  if (known) tcsetattr(state.fd, TCSANOW, &held);
  Write(kPasteOn);
  state.resumed = 1;
  errno = error;
}

}  // namespace

TerminalHold::TerminalHold(int fd) {
  BATON_CHECK(state.fd < 0) << "one at a time";
  BATON_CHECK(tcgetattr(fd, &state.before) == 0) << "not a terminal";
  state.fd = fd;
  state.resumed = 0;
  state.resized = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &state.actions[i]);
  Write(kPasteOn);
}

TerminalHold::~TerminalHold() {
  Write(kPasteOff);
  tcsetattr(state.fd, TCSADRAIN, &state.before);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &state.actions[i], nullptr);
  state.fd = -1;
}

bool TerminalHold::Resumed() {
  if (state.resumed == 0) return false;
  state.resumed = 0;
  return true;
}

bool TerminalHold::Resized() {
  if (state.resized == 0) return false;
  state.resized = 0;
  return true;
}

}  // namespace baton::cli
