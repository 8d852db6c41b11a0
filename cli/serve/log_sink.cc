#include "cli/serve/log_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

namespace baton::cli {

absl::StatusOr<LogSink> LogSink::Open(const std::string& folder, const std::vector<ProcessSpec>& specs,
                                      const Terminal& terminal) {
  constexpr std::array<Style, 5> kStyles = {Style::kBlue, Style::kGreen, Style::kMagenta, Style::kYellow,
                                            Style::kCyan};
  LogSink sink;
  sink.terminal_ = terminal;
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
    sink.files_[spec.name].reset(file);
  }
  return sink;
}

void LogSink::Write(const std::string& name, std::string_view line) {
  if (const auto file = files_.find(name); file != files_.end()) {
    fmt::print(file->second.get(), "{}\n", line);
    std::fflush(file->second.get());
    return;
  }
  fmt::print(stderr, "{} {}\n", Paint(terminal_, styles_[name], fmt::format("{:<{}} |", name, name_columns_)),
             line);
}

void LogSink::Report(const std::string& text) {
  fmt::print(stderr, "{}\n", Paint(terminal_, Style::kBold, "baton: " + text));
}

}  // namespace baton::cli
