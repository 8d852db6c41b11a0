#include "cli/serve/log_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "cli/show/print.h"

namespace baton::cli {

absl::StatusOr<LogSink> LogSink::Open(const std::string& folder, const std::vector<ProcessSpec>& specs,
                                      LiveLine& screen) {
  constexpr std::array<Style, 5> kStyles = {Style::kBlue, Style::kGreen, Style::kMagenta, Style::kYellow,
                                            Style::kCyan};
  LogSink sink;
  sink.screen_ = &screen;
  for (size_t i = 0; i < specs.size(); ++i) {
    sink.name_columns_ = std::max(sink.name_columns_, specs[i].name.size());
    sink.styles_[specs[i].name] = kStyles[i % kStyles.size()];
  }
  if (folder.empty()) return sink;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const ProcessSpec& spec : specs) {
    const std::string path = fmt::format("{}/{}.log", folder, spec.name);
    std::FILE* file = std::fopen(path.c_str(), "ae");
    if (file == nullptr) return absl::ErrnoToStatus(errno, fmt::format("can't write {}", path));
    std::setvbuf(file, nullptr, _IONBF, 0);  // a line that a full disk refuses does not wait in a buffer
    sink.files_[spec.name].file.reset(file);
  }
  return sink;
}

void LogSink::Write(const std::string& name, std::string_view line) {
  if (const auto found = files_.find(name); found != files_.end()) {
    LogFile& log = found->second;
    std::FILE* const file = log.file.get();
    if (log.lost > 0) Print(file, "baton: {} line(s) could not be written here\n", log.lost);
    Print(file, "{}\n", line);
    const bool written = std::ferror(file) == 0;
    std::clearerr(file);
    log.lost = written ? 0 : log.lost + 1;
    return;
  }
  const std::string prefix =
      Paint(screen_->terminal(), styles_[name], fmt::format("{:<{}} |", name, name_columns_));
  screen_->Say(fmt::format("{} {}\n", prefix, line));
}

void LogSink::Report(const std::string& text) {
  screen_->Say(fmt::format("{}\n", Paint(screen_->terminal(), Style::kBold, "baton: " + text)));
}

}  // namespace baton::cli
