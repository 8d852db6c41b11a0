// LiveLine: the lowest line of standard error, rewritten in place while other lines pass above it. Where
// standard error is no terminal, or this process runs in a terminal's background, only those others are
// written. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cli/show/terminal.h"

namespace baton::cli {

class LiveLine {
 public:
  explicit LiveLine(const Terminal& terminal) : terminal_(terminal) {}
  // Takes the line off the screen.
  ~LiveLine() { Set(""); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  const Terminal& terminal() const { return terminal_; }
  // Replaces the line, cut where the terminal ends; empty takes it away. Without styles.
  void Set(std::string line);
  // Whole lines above it, each ended. What can't be written is lost (print.h).
  void Say(std::string_view lines);

 private:
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Terminal terminal_;
  absl::Mutex mutex_;
  std::string line_ ABSL_GUARDED_BY(mutex_);
  bool drawn_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::cli
