// CudaPayload: payloads on a GPU. Pack runs on a stream of its own on rank 0's GPU, after the mark that is
// announced of every rank, so it sees the KV that their kernels have written and waits for nothing later; a
// transfer's stream waits for it by an event, and so do uploads into the pieces and later steps.
// Unpack runs on the stream of uploads, in their order, and does not wait for a step in flight. Staging
// memory is never touched on the compute stream by the link's thread: that stream may be in the middle of a
// capture. The trailer holds a CRC32C per 256 bytes, made and compared on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/transfer/nccl/payload.h"

namespace baton::transfer {

class CudaPayload final : public Payload {
 public:
  // The memories of the engine's ranks, of which the first's GPU does the work. They outlive it.
  static absl::StatusOr<std::unique_ptr<CudaPayload>> Create(std::vector<device::cuda::CudaMemory*> ranks);

  absl::StatusOr<device::Memory::Buffer> Stage(int64_t bytes) override;
  int64_t TrailerBytes(int64_t bytes) const override;
  void Pack(ConstPieces pieces, std::byte* staging) override;
  absl::Status Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) override;
  // What is put on `transfer` from now on comes after all that Pack has begun. Under the link's lock.
  void OrderAfterPack(cudaStream_t transfer);

 private:
  explicit CudaPayload(std::vector<device::cuda::CudaMemory*> ranks)
      : ranks_(std::move(ranks)), memory_(*ranks_.front()), uploads_(memory_.uploads()) {}

  const std::vector<device::cuda::CudaMemory*> ranks_;
  device::cuda::CudaMemory& memory_;
  const cudaStream_t uploads_;
  device::cuda::Stream packs_;
  device::cuda::Event packed_;    // the last Pack
  device::Memory::Buffer wrong_;  // a flag on the GPU, and where the host reads it
  device::cuda::PinnedBytes seen_;
};

}  // namespace baton::transfer
