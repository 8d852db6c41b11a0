// CudaPayload: payloads on a GPU. Pack and Unpack run on the engine's compute stream, so they see the KV that
// its kernels have written and write what its kernels read next; the link's stream waits for Pack by an
// event. The trailer holds a CRC32C per 256 bytes, made and compared on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "common/device/cuda/handles.h"
#include "common/transfer/nccl/payload.h"

namespace baton::transfer {

class CudaPayload final : public Payload {
 public:
  // `memory` is the engine's, whose stream is `compute`; all outlive it.
  static absl::StatusOr<std::unique_ptr<CudaPayload>> Create(int device, device::Memory& memory,
                                                             cudaStream_t compute, cudaStream_t link);

  device::Memory& memory() override { return memory_; }
  int64_t TrailerBytes(int64_t bytes) const override;
  void Pack(ConstPieces pieces, std::byte* staging) override;
  void OrderAfter() override;
  absl::Status Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) override;

 private:
  CudaPayload(int device, device::Memory& memory, cudaStream_t compute, cudaStream_t link)
      : device_(device), memory_(memory), compute_(compute), link_(link) {}

  const int device_;
  device::Memory& memory_;
  const cudaStream_t compute_;
  const cudaStream_t link_;
  device::cuda::Event packed_;    // the last Pack
  device::Memory::Buffer wrong_;  // a flag on the GPU, and where the host reads it
  device::cuda::PinnedBytes seen_;
};

}  // namespace baton::transfer
