// CudaPayload: payloads on a GPU. Pack and Unpack run on the engine's compute stream, so they see the KV that
// its kernels have written and write what its kernels read next; a transfer's stream waits for Pack by an
// event. Staging memory is never touched on the compute stream by the link's thread: that stream may be in
// the middle of a capture. The trailer holds a CRC32C per 256 bytes, made and compared on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "common/device/cuda/handles.h"
#include "common/transfer/nccl/payload.h"

namespace baton::transfer {

class CudaPayload final : public Payload {
 public:
  // `memory` is the engine's, whose stream is `compute`; both outlive it.
  static absl::StatusOr<std::unique_ptr<CudaPayload>> Create(int device, device::Memory& memory,
                                                             cudaStream_t compute);

  absl::StatusOr<device::Memory::Buffer> Stage(int64_t bytes) override;
  int64_t TrailerBytes(int64_t bytes) const override;
  void Pack(ConstPieces pieces, std::byte* staging) override;
  absl::Status Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) override;
  // What is put on `transfer` from now on comes after all that Pack has begun. Under the link's lock.
  void OrderAfterPack(cudaStream_t transfer);

 private:
  CudaPayload(int device, device::Memory& memory, cudaStream_t compute)
      : device_(device), memory_(memory), compute_(compute) {}

  const int device_;
  device::Memory& memory_;
  const cudaStream_t compute_;
  device::cuda::Event packed_;    // the last Pack
  device::Memory::Buffer wrong_;  // a flag on the GPU, and where the host reads it
  device::cuda::PinnedBytes seen_;
};

}  // namespace baton::transfer
