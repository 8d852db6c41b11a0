// Staging: one slab of memory, taken once, and the runs of it that payloads on their way use. Memory of a GPU
// is neither taken nor given back while a link works: freeing waits for all that runs on the device, kernels
// of NCCL whose peer hangs included. Bookkeeping only: it never looks inside. Best fit, with neighbours
// joined; whoever owns it has the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "engine/device/memory.h"

namespace baton::transfer {

class Staging {
 public:
  // A run; `bytes` is what it takes of the slab.
  struct Run {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  // Runs begin and end at multiples of this.
  static constexpr int64_t kUnit = 4096;

  // All of `slab`, which has `bytes` bytes.
  Staging(device::Memory::Buffer slab, int64_t bytes);

  // Nothing if no free run is long enough.
  std::optional<Run> Take(int64_t bytes);
  // Gives a taken run back, once: the whole, or its parts one by one.
  void GiveBack(const Run& run);
  // Cuts a part of `bytes`, a multiple of kUnit and no more than it has, off a run.
  static Run TakeFront(Run& run, int64_t bytes);

  int64_t bytes() const { return bytes_; }
  int64_t in_use() const { return in_use_; }
  // Bytes of the longest free run.
  int64_t longest() const;
  // Size of a run that holds `bytes`.
  static int64_t Size(int64_t bytes);

 private:
  const device::Memory::Buffer slab_;
  const int64_t bytes_;
  int64_t in_use_ = 0;
  std::map<int64_t, int64_t> free_;  // by offset; no two touch
};

}  // namespace baton::transfer
