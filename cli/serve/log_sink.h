// LogSink: where the lines of supervised processes go: to standard error behind their names, or to a file
// each. One thread at a time.
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/serve/supervisor.h"
#include "cli/show/terminal.h"

namespace baton::cli {

class LogSink {
 public:
  // `folder` empty: standard error. Otherwise it is made if needed, and FOLDER/NAME.log is appended to.
  static absl::StatusOr<LogSink> Open(const std::string& folder, const std::vector<ProcessSpec>& specs,
                                      const Terminal& terminal);

  void Write(const std::string& name, std::string_view line);
  // Something for the person who runs the service.
  void Report(const std::string& text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  Terminal terminal_;
  size_t name_columns_ = 0;
  std::map<std::string, std::unique_ptr<std::FILE, Close>> files_;
  std::map<std::string, Style> styles_;
};

}  // namespace baton::cli
