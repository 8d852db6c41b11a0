// LoadWatch: while it lives, what a process does with a model folder's tokenizer and chat template takes no
// more memory and CPU time than that of any real model; the process ends at once beyond that. Both come from
// the Internet and say what libraries do: such a library can be stopped in no other way. One that loads makes
// one; a thread of its own looks.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton::telemetry {

// A router takes 630 MiB and 2.5 s for a byte-level tokenizer of 256,000 tokens with 766,000 merges, which is
// more than any that is published, and 730 MiB and 3.5 s for a GGUF file's with 892,000.
struct LoadLimits {
  // Bytes of memory of the process's own (no mapped files) more than at the beginning.
  int64_t memory = int64_t{2} << 30;
  // CPU time of the whole process since the beginning. A slow disk takes none.
  absl::Duration cpu = absl::Seconds(60);
};

class LoadWatch {
 public:
  // Beyond a limit: logs an error that names the folder and the limit, and ends the process with exit code 1,
  // without destructors.
  explicit LoadWatch(std::string folder, const LoadLimits& limits = {});
  ~LoadWatch();
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

 private:
  struct Use {
    int64_t memory = 0;
    absl::Duration cpu;
  };
  static Use Now();
  void LookUntilStopped();
  // Ends the process if a limit is passed.
  void Look() const;

  const std::string folder_;
  const LoadLimits limits_;
  const Use begin_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::telemetry
