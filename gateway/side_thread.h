// SideThread: a thread for what would keep the server's from its other clients: reading a large body, writing
// a large answer. One client address after the other has one task done, so that a client with many waits for
// itself. Tasks hold what they are about; what there is of them is bounded by what clients may have the
// process hold. Any thread.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/fair_lines.h"

namespace baton::gateway {

class SideThread {
 public:
  SideThread();
  // Does what is left first.
  ~SideThread();

  // `address`: of the client it is for.
  void Run(const std::string& address, std::function<void()> task);

 private:
  void Loop();
  // The next task; none: all are done, and no more will come.
  std::function<void()> Next();

  absl::Mutex mutex_;
  FairLines<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);  // a line for each address
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::gateway
