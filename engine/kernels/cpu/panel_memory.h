// PanelMemory: where the packed matrices of one backend lie. Those of 2 MiB and more have pages of that size
// to themselves; smaller ones share chunks of such pages, so that a step streams them as fast (4 KiB pages
// cost a fifth of a core's bandwidth). What is given back is used again, and a chunk that nothing is left of
// is freed. Any thread. It may end before what was taken from it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::kernels::cpu {

class PanelMemory {
 public:
  // `bytes` of memory, aligned to a cache line; null: they can't be had. Its content is not defined.
  std::shared_ptr<std::byte> Take(size_t bytes);

 private:
  class Chunk;

  absl::Mutex mutex_;
  // By where they lie; an expired one has given everything back.
  std::map<const std::byte*, std::weak_ptr<Chunk>> chunks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::kernels::cpu
