#include "cli/chat/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "text/utf8.h"

namespace baton::cli {

LineReader::Event LineReader::Next(int interrupt_fd, std::string* line) {
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      *line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line->empty() && line->back() == '\r') line->pop_back();
      return Event::kLine;
    }
    if (ended_) {
      if (buffer_.empty()) return Event::kEnd;
      *line = std::exchange(buffer_, {});
      return Event::kLine;
    }
    pollfd fds[2] = {{fd_, POLLIN, 0}, {interrupt_fd, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return Event::kInterrupt;
    char bytes[4096];
    const ssize_t got = read(fd_, bytes, sizeof(bytes));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) {
      ended_ = true;
    } else {
      buffer_.append(bytes, got);
    }
  }
}

bool RepairUtf8(std::string* text) {
  std::string repaired;
  text::Utf8Assembler assembler;
  assembler.Push(*text, &repaired);
  assembler.Flush(&repaired);
  if (repaired == *text) return false;
  *text = std::move(repaired);
  return true;
}

}  // namespace baton::cli
