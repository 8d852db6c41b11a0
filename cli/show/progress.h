// Progress: one line that says how far a long command is. On a terminal the line is rewritten; elsewhere (a
// log, a CI run) a new line comes every few seconds, so that files stay readable. One thread at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "cli/show/terminal.h"
#include "common/base/clock.h"

namespace baton::cli {

class Progress {
 public:
  // `total` 0: unknown. Writes to `out`, as `terminal` can show it.
  Progress(std::string label, int64_t total, std::FILE* out, const Terminal& terminal, const Clock& clock);
  // Ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap to call often: draws at most ten times a second on a terminal, every 10 s elsewhere.
  void Update(int64_t done, const std::string& note = "");
  // Draws the last state and leaves it on the screen.
  void Finish();

  // The line as it would be drawn now, without line break; on a terminal never wider than that.
  std::string Line() const;

 private:
  void Draw();

  const std::string label_;
  const int64_t total_;
  std::FILE* const out_;
  const Terminal terminal_;
  const Clock& clock_;
  const absl::Time start_;
  absl::Time drawn_ = absl::InfinitePast();
  int64_t done_ = 0;
  std::string note_;
  bool finished_ = false;
};

}  // namespace baton::cli
