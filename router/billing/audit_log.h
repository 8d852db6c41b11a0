// AuditLog: a file to which lines are appended whole; "-" is standard output. A file that was moved away
// (logrotate) is made again. One thread; calls wait for the disk.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton::router::billing {

class AuditLog {
 public:
  // Makes the file if it is not there, readable by its owner and group.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Appends all of `lines`, each of which ends with a newline, or nothing. A line that the file's last writer
  // did not complete, because it died, is ended first.
  absl::Status Append(std::string_view lines);

 private:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}
  absl::Status Reopen();
  bool MovedAway() const;

  const std::string path_;
  int file_ = -1;
};

}  // namespace baton::router::billing
