// The real NCCL, on the GPU of the engine's rank 0. The KV of other ranks is read and written from there, by
// peer access: a pack waits for the mark that each rank has set behind its writes, later writes of other
// ranks come behind a sum and so behind the pack, and a chunk counts as written when the host has seen the
// end of its copies.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "engine/device/cuda/cuda_memory.h"
#include "engine/device/cuda/status.h"
#include "transfer/nccl/cuda_payload.h"
#include "transfer/nccl/open_nccl.h"
#include "transfer/nccl/real_nccl.h"

namespace baton::transfer {
namespace {

class CudaNccl final : public Nccl {
 public:
  CudaNccl(std::unique_ptr<CudaPayload> payload, std::unique_ptr<RealNccl> nccl)
      : payload_(std::move(payload)), nccl_(std::move(nccl)) {}
  NcclApi Api() override { return nccl_->Api(); }
  Payload& payload() override { return *payload_; }
  int version() const override { return nccl_->version(); }
  int channels() const override { return RealNcclOptions().channels; }

 private:
  const std::unique_ptr<CudaPayload> payload_;
  const std::unique_ptr<RealNccl> nccl_;
};

absl::Status LetReach(int device, int peer) {
  int can = 0;
  BATON_RETURN_IF_ERROR(
      device::cuda::ToStatus(cudaDeviceCanAccessPeer(&can, device, peer), "asking for peer access"));
  if (can == 0) {
    return absl::FailedPreconditionError(fmt::format(
        "--link nccl with --tp: GPU {} can't reach the memory of GPU {}: use --link host, or GPUs "
        "that are joined by NVLink or one PCIe switch",
        device, peer));
  }
  BATON_RETURN_IF_ERROR(device::cuda::Use(device));
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();  // NCCL did it for tensor parallelism
    return absl::OkStatus();
  }
  return device::cuda::ToStatus(enabled, "reaching another GPU's memory");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl(std::span<device::Memory* const> ranks) {
  std::vector<device::cuda::CudaMemory*> memories;
  for (device::Memory* memory : ranks) {
    auto* const on_gpu = dynamic_cast<device::cuda::CudaMemory*>(memory);
    if (on_gpu == nullptr) {
      return absl::FailedPreconditionError(fmt::format(
          "--link nccl moves KV between GPUs, and it is in {}: use --backend cuda, or use --link host",
          memory->name()));
    }
    memories.push_back(on_gpu);
  }
  device::cuda::CudaMemory& first = *memories.front();
  for (const auto* other : std::span(memories).subspan(1)) {
    if (other->device() != first.device()) BATON_RETURN_IF_ERROR(LetReach(first.device(), other->device()));
  }
  BATON_ASSIGN_OR_RETURN(auto payload, CudaPayload::Create(memories));
  BATON_ASSIGN_OR_RETURN(auto nccl, RealNccl::Create({.device = first.device()}));
  return std::make_unique<CudaNccl>(std::move(payload), std::move(nccl));
}

}  // namespace baton::transfer
