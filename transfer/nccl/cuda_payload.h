// CudaPayload: payloads on a GPU. Pack runs on a stream of its own on rank 0's GPU, after the mark that is
// announced of every rank, so it sees the KV that their kernels have written and waits for nothing later. It
// marks its end by an event of its own: a transfer is put once that has come, and uploads into the pieces and
// later steps wait for it.
// Unpack runs on the stream of uploads, in their order, and waits neither for a step in flight nor, on the
// host, for its own end: nothing is copied if the check before it on the stream has failed. Staging
// memory is never touched on the compute stream by the link's thread: that stream may be in the middle of a
// capture. The trailer holds a CRC32C per 256 bytes, made and compared on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/cuda/cuda_memory.h"
#include "transfer/nccl/payload.h"

namespace baton::transfer {

class CudaPayload final : public Payload {
 public:
  // The memories of the engine's ranks, of which the first's GPU does the work. They outlive it.
  static absl::StatusOr<std::unique_ptr<CudaPayload>> Create(std::vector<device::cuda::CudaMemory*> ranks);

  void Enter() override { device::cuda::MustUse(memory_.device()); }
  absl::StatusOr<device::Memory::Buffer> Stage(int64_t bytes) override;
  int64_t TrailerBytes(int64_t bytes) const override;
  uint64_t Pack(ConstPieces pieces, std::byte* staging) override;
  bool Packed(uint64_t number) override;
  uint64_t Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) override;
  std::optional<absl::Status> Unpacked(uint64_t number) override;

 private:
  explicit CudaPayload(std::vector<device::cuda::CudaMemory*> ranks)
      : ranks_(std::move(ranks)), memory_(*ranks_.front()), uploads_(memory_.uploads()) {}

  // In progress at once. Their events are made at start.
  static constexpr size_t kMostPacks = 512, kMostUnpacks = 512;

  // Puts a mark on the stream, behind those of the same list.
  cudaEvent_t Mark(std::deque<device::cuda::Event>& marks, cudaStream_t stream);
  // Drops the first mark if it has been reached.
  bool TakeFirst(std::deque<device::cuda::Event>& marks);
  std::byte* Seen(uint64_t number) const { return seen_.get() + number % kMostUnpacks * sizeof(uint32_t); }

  const std::vector<device::cuda::CudaMemory*> ranks_;
  device::cuda::CudaMemory& memory_;
  const cudaStream_t uploads_;
  device::cuda::Stream packing_;
  // Packs and unpacks that have not been seen to end, in order: the first is the number after those that
  // have. The events of those that have serve again.
  std::deque<device::cuda::Event> packs_, unpacks_;
  std::vector<device::cuda::Event> spare_;
  uint64_t packed_ = 0, unpacked_ = 0;
  // By number, modulo their count: flags on the GPU, and where the host reads them.
  device::Memory::Buffer wrong_;
  device::cuda::PinnedBytes seen_;
};

}  // namespace baton::transfer
