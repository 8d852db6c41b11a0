#include "router/billing/audit_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "common/base/status.h"

namespace baton::router::billing {
namespace {

constexpr char kStandardOutput[] = "-";

absl::Status SystemFailure(const std::string& path, std::string_view what) {
  const std::string words = fmt::format("{}: {}: {}", path, what, std::generic_category().message(errno));
  return errno == ENOSPC || errno == EDQUOT ? absl::ResourceExhaustedError(words)
                                            : absl::UnavailableError(words);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path) {
  std::unique_ptr<AuditLog> log(new AuditLog(path));
  BATON_RETURN_IF_ERROR(log->Reopen());
  return log;
}

AuditLog::~AuditLog() {
  if (file_ >= 0) close(file_);
}

absl::Status AuditLog::Reopen() {
  if (file_ >= 0) close(file_);
  if (path_ == kStandardOutput) {
    file_ = dup(STDOUT_FILENO);
    return file_ < 0 ? SystemFailure("standard output", "can't be opened") : absl::OkStatus();
  }
  file_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (file_ < 0) return SystemFailure(path_, "can't be opened");
  struct stat info = {};
  if (fstat(file_, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return absl::OkStatus();
  char last = 0;
  if (pread(file_, &last, 1, info.st_size - 1) == 1 && last != '\n') return Append("\n");
  return absl::OkStatus();
}

bool AuditLog::MovedAway() const {
  if (path_ == kStandardOutput) return file_ < 0;
  struct stat here = {}, there = {};
  if (file_ < 0 || fstat(file_, &here) != 0 || stat(path_.c_str(), &there) != 0) return true;
  return here.st_ino != there.st_ino || here.st_dev != there.st_dev;
}

absl::Status AuditLog::Append(std::string_view lines) {
  if (lines != "\n" && MovedAway()) BATON_RETURN_IF_ERROR(Reopen());
  struct stat before = {};
  if (fstat(file_, &before) != 0) return SystemFailure(path_, "can't be read");
  size_t written = 0;
  while (written < lines.size()) {
    const ssize_t count = write(file_, lines.data() + written, lines.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const absl::Status failure = SystemFailure(path_, "can't be written");
      // Half a line would be read as a whole one.
      if (written > 0 && S_ISREG(before.st_mode)) (void)!ftruncate(file_, before.st_size);
      return failure;
    }
    written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace baton::router::billing
