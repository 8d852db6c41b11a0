// TerminalHold: a terminal in a state that only its holder understands, and what gives it back when the
// process is stopped (Ctrl-Z) or ended by a signal. One at a time, main thread; make it before other threads
// start.
#pragma once

namespace baton::cli {

class TerminalHold {
 public:
  // Remembers the modes of the terminal on `fd`, switches bracketed paste on and takes over SIGTSTP, SIGHUP,
  // SIGQUIT and SIGTERM: each of them gives the terminal back before it does what it always does. After a
  // stop the terminal is as the holder had it. SIGWINCH is noted.
  explicit TerminalHold(int fd);
  // Gives the terminal back.
  ~TerminalHold();
  TerminalHold(const TerminalHold&) = delete;
  TerminalHold& operator=(const TerminalHold&) = delete;

  // True if the process was stopped since the last call: the screen has changed.
  bool Resumed();
  // True if the terminal has another size since the last call.
  bool Resized();
};

}  // namespace baton::cli
