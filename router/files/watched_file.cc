#include "router/files/watched_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

namespace baton::router {
namespace {

// A text that changes when the file's content does.
std::string VersionOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{}/{}/{}/{}.{:09}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

}  // namespace

WatchedFile::WatchedFile(std::string path) : path_(std::move(path)), seen_(VersionOf(path_)) {}

WatchedFile::~WatchedFile() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void WatchedFile::Watch(absl::Duration interval, std::function<void()> changed) {
  thread_ =
      std::thread([this, interval, changed = std::move(changed)] { WatchUntilStopped(interval, changed); });
}

void WatchedFile::WatchUntilStopped(absl::Duration interval, const std::function<void()>& changed) {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), interval)) return;
    }
    std::string now = VersionOf(path_);
    if (now == seen_) continue;
    seen_ = std::move(now);
    changed();
  }
}

}  // namespace baton::router
