// LineReader: lines from a descriptor, interruptible: people type Ctrl-C while they think. One thread at a
// time.
#pragma once

#include <string>

namespace baton::cli {

class LineReader {
 public:
  enum class Event { kLine, kEnd, kInterrupt };

  // Doesn't own `fd`.
  explicit LineReader(int fd) : fd_(fd) {}

  // Waits for a line (without its line break), the end of input, or `interrupt_fd` (-1: none) to become
  // readable. A last line without a line break is a line.
  Event Next(int interrupt_fd, std::string* line);

 private:
  const int fd_;
  std::string buffer_;
  bool ended_ = false;
};

// Replaces what is not UTF-8 in `text`, which no server would take, by U+FFFD. True if there was any.
bool RepairUtf8(std::string* text);

}  // namespace baton::cli
