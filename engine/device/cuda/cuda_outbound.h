// CudaOutbound: what leaves one GPU for the host. Gather launches a kernel that copies the pieces into a slab
// on the GPU, on a stream of its own, and later uploads and steps come after it; Take copies that run of the
// slab through two page-locked buffers. The slab, the events and the buffers are made at start.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/device/cuda/handles.h"
#include "engine/device/memory.h"
#include "engine/device/outbound.h"

namespace baton::device::cuda {

class CudaMemory;

class CudaOutbound final : public Outbound {
 public:
  // `memory` outlives it.
  static absl::StatusOr<std::unique_ptr<CudaOutbound>> Create(CudaMemory& memory, int64_t bytes);
  // Waits for what was gathered and not taken.
  ~CudaOutbound() override;

  uint64_t Gather(int64_t mark, std::span<const Piece> pieces) override;
  void Take(uint64_t number, std::byte* payload) override;

 private:
  // The bytes that one Gather put into the slab, at [begin, begin + bytes), in the order of its pieces. It
  // has the slab up to begin + room, which is never empty.
  struct Parcel {
    uint64_t number = 0;
    int64_t begin = 0, bytes = 0, room = 0;
    std::vector<Piece> pieces;
    Event gathered;
  };
  static constexpr size_t kMostParcels = 1024;
  static constexpr int64_t kPartBytes = int64_t{2} << 20;

  CudaOutbound(CudaMemory& memory, int64_t bytes) : memory_(memory), bytes_(bytes) {}
  // Where so much is free behind the last parcel, or -1.
  int64_t Free(int64_t room) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CudaMemory& memory_;
  const int64_t bytes_;
  Memory::Buffer slab_;
  Stream gathers_, copies_;
  // Used by Take alone.
  PinnedBytes staged_[2];
  Event copied_[2];

  absl::Mutex mutex_;
  uint64_t gathered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Parcel> parcels_ ABSL_GUARDED_BY(mutex_);  // not taken, in order
  std::vector<Event> spare_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::device::cuda
