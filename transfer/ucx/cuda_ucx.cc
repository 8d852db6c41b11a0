// UCX for KV on GPUs, or in host memory by a build with CUDA. UCX itself has to be built with CUDA to take
// the GPU's memory (Debian's is not). As with NCCL, the GPU of the engine's rank 0 packs and unpacks for all
// ranks.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "engine/device/cuda/cuda_memory.h"
#include "engine/device/cuda/status.h"
#include "transfer/nccl/cuda_payload.h"
#include "transfer/ucx/open_ucx.h"
#include "transfer/ucx/ucx_fabric.h"

namespace baton::transfer {

absl::StatusOr<Ucx> OpenUcx(std::span<device::Memory* const> ranks) {
  Ucx ucx;
  if (std::ranges::all_of(ranks, [](const device::Memory* memory) { return memory->host(); })) {
    BATON_ASSIGN_OR_RETURN(ucx.fabric, UcxFabric::Create(false));
    ucx.payload = MakeHostPayload();
    ucx.place = "host";
    return ucx;
  }
  std::vector<device::cuda::CudaMemory*> memories;
  for (device::Memory* memory : ranks) {
    auto* const on_gpu = dynamic_cast<device::cuda::CudaMemory*>(memory);
    if (on_gpu == nullptr) {
      return absl::FailedPreconditionError("--link ucx: KV lies on GPUs and elsewhere: use --link host");
    }
    memories.push_back(on_gpu);
  }
  for (const device::cuda::CudaMemory* memory : memories) {
    const int first = memories.front()->device();
    if (memory->device() == first) continue;
    int can = 0;
    BATON_RETURN_IF_ERROR(device::cuda::ToStatus(cudaDeviceCanAccessPeer(&can, first, memory->device()),
                                                 "asking for peer access"));
    if (can == 0) {
      return absl::FailedPreconditionError(
          fmt::format("--link ucx with --tp: GPU {} can't reach the memory of GPU {}: use --link host", first,
                      memory->device()));
    }
    BATON_RETURN_IF_ERROR(device::cuda::Use(first));
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(memory->device(), 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();  // NCCL did it for tensor parallelism
    } else {
      BATON_RETURN_IF_ERROR(device::cuda::ToStatus(enabled, "reaching another GPU's memory"));
    }
  }
  // UCX looks for the GPU when it is opened.
  BATON_RETURN_IF_ERROR(device::cuda::Use(memories.front()->device()));
  BATON_ASSIGN_OR_RETURN(ucx.payload, CudaPayload::Create(memories));
  BATON_ASSIGN_OR_RETURN(ucx.fabric, UcxFabric::Create(true));
  ucx.place = "cuda";
  return ucx;
}

}  // namespace baton::transfer
