// WatchedFile: looks every so often whether a file has changed, and says so. What counts is where a path
// leads to at that moment: a mounted secret or config map that is swapped by a symbolic link is noticed, and
// so is a file that goes or comes back. It doesn't read the file. Watch() from one thread; the listener runs
// on a thread of the watch's own.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton::router {

class WatchedFile {
 public:
  // Remembers the file as it is now: make this before the first reading, and no change is missed.
  explicit WatchedFile(std::string path);
  // No call of the listener runs, or will.
  ~WatchedFile();
  WatchedFile(const WatchedFile&) = delete;
  WatchedFile& operator=(const WatchedFile&) = delete;

  const std::string& path() const { return path_; }

  // Looks every `interval` from now on. Once.
  void Watch(absl::Duration interval, std::function<void()> changed);

 private:
  void WatchUntilStopped(absl::Duration interval, const std::function<void()>& changed);

  const std::string path_;
  std::string seen_;  // the thread's, once it runs
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::router
