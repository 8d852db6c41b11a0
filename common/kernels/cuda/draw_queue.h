// DrawQueue: draws on their way. What is asked for goes to the device, and the tokens come home, through
// page-locked memory and without waiting; on the device the tokens stay until the next draw, so that a step
// may go on from them before the host knows them (TakenWord). What sequences have seen is counted on the
// device, too, so that penalties know such a token. Owner thread of the GPU's engine only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/device/cuda/handles.h"
#include "common/device/memory.h"
#include "common/kernels/draw.h"
#include "common/kernels/kernels.h"

namespace baton::kernels::cuda {

class DrawQueue {
 public:
  // RESOURCE_EXHAUSTED for want of memory.
  static absl::StatusOr<DrawQueue> Create(cudaStream_t stream, device::Memory& memory);

  // In the order of the stream. At most two are under way. True if tokens() has moved.
  bool Launch(Matrix logits, const StepDraws& draws);
  // Counts for so many slots, each [vocabulary] words; what is counted stays. False: no memory.
  bool ReserveCounts(int32_t slots, int64_t vocabulary);
  // Waits for the tokens of the oldest under way.
  void Finish(std::span<TokenId> tokens);
  // What the last draw gave, on the device.
  const int32_t* tokens() const { return reinterpret_cast<const int32_t*>(tokens_.get()); }

 private:
  struct Slot {
    device::cuda::PinnedBytes asked;  // a DrawTable
    device::cuda::PinnedBytes given;  // int32 each
    device::cuda::Event home;         // after which `given` may be read, and `asked` written
    int64_t asked_bytes = 0;
    int64_t capacity = 0;  // draws
    int64_t count = 0;     // of those under way
  };
  DrawQueue(cudaStream_t stream, device::Memory& memory) : stream_(stream), memory_(&memory) {}
  // Of tables and draws, on the device.
  absl::Status ReserveTable(int64_t bytes);
  absl::Status ReserveTokens(int64_t draws);
  // Of both, on the host; what `slot` has is on its way no more.
  static absl::Status Reserve(Slot& slot, int64_t table_bytes, int64_t draws);

  cudaStream_t stream_;
  device::Memory* memory_;
  device::Memory::Buffer asked_;   // a DrawTable
  device::Memory::Buffer tokens_;  // [capacity_] int32
  device::Memory::Buffer counts_;  // [count_slots_, vocabulary_] words
  int64_t asked_bytes_ = 0;
  int64_t capacity_ = 0;
  int32_t count_slots_ = 0;
  int64_t vocabulary_ = 0;
  std::array<Slot, 2> slots_;
  uint64_t launched_ = 0;
  uint64_t finished_ = 0;
};

}  // namespace baton::kernels::cuda
