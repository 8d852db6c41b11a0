#include "cli/show/print.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace baton::cli {
namespace {

// As many as there is standard error: one.
std::atomic<int64_t> lost_lines = 0;

// Standard error has no buffer: what fwrite took has been written.
bool Write(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stderr) == text.size();
  std::clearerr(stderr);
  return written;
}

}  // namespace

absl::Status Put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  const absl::Status why = absl::ErrnoToStatus(errno, "the answer could not be written to standard output");
  return absl::UnavailableError(why.message());
}

bool Tell(std::string_view text) {
  if (const int64_t lost = lost_lines.exchange(0); lost > 0) {
    if (!Write(fmt::format("baton: {} line(s) could not be written here\n", lost))) lost_lines += lost;
  }
  if (Write(text)) return true;
  lost_lines += std::max<int64_t>(1, std::count(text.begin(), text.end(), '\n'));
  return false;
}

int64_t LostLines() { return lost_lines; }

}  // namespace baton::cli
