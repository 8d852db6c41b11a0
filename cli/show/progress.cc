#include "cli/show/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/show/print.h"
#include "cli/show/quantity.h"

namespace baton::cli {
namespace {

constexpr absl::Duration kTerminalPeriod = absl::Milliseconds(100);
constexpr absl::Duration kLogPeriod = absl::Seconds(10);
constexpr int kBarCells = 24;

}  // namespace

Progress::Progress(std::string label, int64_t total, std::FILE* out, const Terminal& terminal,
                   const Clock& clock)
    : label_(std::move(label)),
      total_(total),
      out_(out),
      terminal_(terminal),
      clock_(clock),
      start_(clock.Now()) {
  // In a log the start is written only if the work lasts.
  if (!terminal_.interactive) drawn_ = start_;
}

Progress::~Progress() { Finish(); }

void Progress::Update(int64_t done, const std::string& note) {
  done_ = done;
  note_ = note;
  const absl::Time now = clock_.Now();
  if (now - drawn_ < (terminal_.interactive ? kTerminalPeriod : kLogPeriod)) return;
  drawn_ = now;
  Draw();
}

void Progress::Finish() {
  if (finished_) return;
  finished_ = true;
  Draw();
  if (terminal_.interactive) {
    std::fputc('\n', out_);
    std::fflush(out_);
  }
}

std::string Progress::Line() const {
  const double elapsed = absl::ToDoubleSeconds(clock_.Now() - start_);
  std::string line = label_;
  if (total_ > 0) {
    const double share = std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
    const int filled = static_cast<int>(share * kBarCells);
    std::string bar;
    for (int i = 0; i < kBarCells; ++i)
      bar += i < filled ? (terminal_.utf8 ? "█" : "#") : (terminal_.utf8 ? "░" : ".");
    line += fmt::format(" {} {}/{}", bar, ShowCount(done_), ShowCount(total_));
    if (done_ > 0 && done_ < total_ && elapsed > 1) {
      line += fmt::format(", {} left", ShowSeconds(std::max(1.0, elapsed / share - elapsed)));
    }
  } else {
    line += fmt::format(" {} in {}", ShowCount(done_), ShowSeconds(elapsed));
  }
  if (!note_.empty()) line += "  " + note_;
  return terminal_.interactive ? FirstColumns(std::move(line), terminal_.width - 1) : line;
}

void Progress::Draw() {
  // Erase to the end of the line (ECMA-48 EL), so that a shorter line leaves nothing of a longer one.
  if (terminal_.interactive) {
    Print(out_, "\r{}\x1b[K", Line());
  } else {
    Print(out_, "{}\n", Line());
  }
  std::fflush(out_);
}

}  // namespace baton::cli
