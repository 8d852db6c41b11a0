// LogSink: where the lines of supervised processes go: to standard error, after the process's name, or to a
// file for each. A line that can't be written is lost and no error: the service continues. One thread at a
// time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/serve/supervisor.h"
#include "cli/show/live_line.h"

namespace baton::cli {

class LogSink {
 public:
  // `folder` empty: standard error, above `screen`. Otherwise it is made if needed, and FOLDER/NAME.log is
  // appended to. `screen` outlives the sink.
  static absl::StatusOr<LogSink> Open(const std::string& folder, const std::vector<ProcessSpec>& specs,
                                      LiveLine& screen);

  void Write(const std::string& name, std::string_view line);
  // A message for the person who runs the service.
  void Report(const std::string& text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  // A file of one process, and the lines that it did not take since the last that it did.
  struct LogFile {
    std::unique_ptr<std::FILE, Close> file;
    int64_t lost = 0;
  };

  LiveLine* screen_ = nullptr;
  size_t name_columns_ = 0;
  std::map<std::string, LogFile> files_;
  std::map<std::string, Style> styles_;
};

}  // namespace baton::cli
