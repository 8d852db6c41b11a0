// DrawQueue: the sampler of the cuda backend. What is asked for is sent to the device, and the tokens are
// copied back, through page-locked memory and without waiting. On the device the tokens stay until the next
// launch, so that a step may go on from them before the host knows them (TakenWord). Penalty slots count on
// the device, too, so that penalties know such a token. Owner thread of the GPU's engine only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "engine/device/cuda/handles.h"
#include "engine/device/memory.h"
#include "engine/kernels/device_sampler.h"

namespace baton::kernels::cuda {

class DrawQueue final : public DeviceSampler {
 public:
  // RESOURCE_EXHAUSTED if there is not enough memory.
  static absl::StatusOr<DrawQueue> Create(int device, cudaStream_t stream, device::Memory& memory,
                                          std::function<void()> moved);

  bool CanSample(int64_t vocabulary) const override;
  // Each slot takes [vocabulary] words.
  bool ReservePenaltySlots(int32_t slots, int64_t vocabulary) override;
  // tokens() may move: then `moved` is called, as steps that were recorded know the old place.
  void Prepare(const StepDraws& draws) override;
  // In the order of the stream.
  void Launch(Matrix logits, const StepDraws& draws) override;
  void Await(std::span<TokenId> tokens) override;
  // The tokens that the last launch drew, on the device.
  const int32_t* tokens() const { return reinterpret_cast<const int32_t*>(tokens_.get()); }

 private:
  // One of the two launches that may be in flight, on the host.
  struct Transfer {
    device::cuda::PinnedBytes asked;  // a DrawTable
    device::cuda::PinnedBytes given;  // int32 each
    device::cuda::Event arrived;      // after which `given` may be read, and `asked` written
    int64_t asked_bytes = 0;
    int64_t capacity = 0;  // draws
    int64_t count = 0;     // of the launch in flight
  };
  DrawQueue(int device, cudaStream_t stream, device::Memory& memory, std::function<void()> moved)
      : device_(device), stream_(stream), memory_(&memory), moved_(std::move(moved)) {}
  // Memory on the device for a table of `bytes`, and for the tokens and states of so many draws.
  absl::Status ReserveTable(int64_t bytes);
  absl::Status ReserveTokens(int64_t draws);
  // Memory on the host for both. `transfer` must not be in flight: what it holds is lost.
  static absl::Status Reserve(Transfer& transfer, int64_t table_bytes, int64_t draws);

  int device_;
  cudaStream_t stream_;
  device::Memory* memory_;
  std::function<void()> moved_;
  device::Memory::Buffer asked_;   // a DrawTable
  device::Memory::Buffer tokens_;  // [capacity_] int32
  device::Memory::Buffer states_;  // [capacity_] of kDrawStateBytes
  device::Memory::Buffer counts_;  // [penalty_slots_, vocabulary_] words
  int64_t asked_bytes_ = 0;
  int64_t capacity_ = 0;
  int32_t penalty_slots_ = 0;
  int64_t vocabulary_ = 0;
  std::array<Transfer, 2> transfers_;  // used in turn
  uint64_t launched_ = 0;
  uint64_t finished_ = 0;
};

}  // namespace baton::kernels::cuda
