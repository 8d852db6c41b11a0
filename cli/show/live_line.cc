#include "cli/show/live_line.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/show/print.h"

namespace baton::cli {

void LiveLine::Set(std::string line) {
  absl::MutexLock lock(&mutex_);
  if (!terminal_.interactive || line == line_) return;
  line_ = std::move(line);
  if (line_.empty()) Erase();
  Draw();
}

void LiveLine::Say(std::string_view lines) {
  absl::MutexLock lock(&mutex_);
  Erase();
  Tell(lines);
  Draw();
}

void LiveLine::Draw() {
  // In the background the terminal belongs to another process.
  if (line_.empty() || tcgetpgrp(STDERR_FILENO) != getpgrp()) return;
  // As wide as the terminal is now.
  const int columns = DetectTerminal(STDERR_FILENO, /*colour=*/false).width - 1;
  Print(stderr, "\r{}\x1b[K", Paint(terminal_, Style::kDim, FirstColumns(line_, columns)));
  drawn_ = true;
}

void LiveLine::Erase() {
  if (std::exchange(drawn_, false)) Print(stderr, "\r\x1b[K");
}

}  // namespace baton::cli
