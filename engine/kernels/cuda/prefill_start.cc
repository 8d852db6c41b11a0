#include "engine/kernels/cuda/prefill_start.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "engine/device/cuda/cuda_memory.h"
#include "engine/device/cuda/status.h"
#include "engine/kernels/cuda/prefill_proof.h"
#include "engine/kernels/cuda/proof_process.h"
#include "spdlog/spdlog.h"

namespace baton::kernels::cuda {
namespace {

// The proof takes less than a second; starting CUDA takes some seconds on a machine with many GPUs.
constexpr absl::Duration kProofLimit = absl::Seconds(120);

}  // namespace

absl::StatusOr<PrefillKernel> StartPrefill(const CudaOptions& options, const cudaDeviceProp& properties) {
  const std::string gpu = fmt::format("{} ({})", options.device, properties.name);
  if (options.prefill_attention == "mma") return PrefillKernel::kMma;
  if (options.prefill_attention == "wgmma") {
    if (HasWgmma(properties.major, properties.minor)) return PrefillKernel::kWgmma;
    return absl::InvalidArgumentError(fmt::format(
        "--prefill-attention wgmma: GPU {} has compute capability {}.{}, and that kernel is for 9.0 "
        "alone: use auto",
        gpu, properties.major, properties.minor));
  }
  const bool apart = !options.proof_command.empty();
  const PrefillChoice choice = ChoosePrefill(properties.major, properties.minor, gpu, [&]() -> absl::Status {
    return apart ? RunProof(options.proof_command, options.device, kProofLimit)
                 : ProveCudaPrefill(options.device);
  });
  if (choice.warning.empty()) return choice.kernel;
  spdlog::warn("{}", choice.warning);
  // Errors that a kernel runs into stay with the process.
  if (!apart && cudaDeviceSynchronize() != cudaSuccess) {
    return absl::InternalError(fmt::format(
        "GPU {} is lost to this process after that: start it again with --prefill-attention mma", gpu));
  }
  return choice.kernel;
}

}  // namespace baton::kernels::cuda

namespace baton::kernels {

absl::Status ProveCudaPrefill(int device) {
  BATON_RETURN_IF_ERROR(device::cuda::Use(device));
  cudaDeviceProp properties;
  BATON_RETURN_IF_ERROR(
      device::cuda::ToStatus(cudaGetDeviceProperties(&properties, device), "asking a GPU what it is"));
  if (!cuda::HasWgmma(properties.major, properties.minor)) {
    return absl::FailedPreconditionError(fmt::format("GPU {} has no wgmma", device));
  }
  BATON_ASSIGN_OR_RETURN(const device::cuda::Stream stream, device::cuda::MakeStream());
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<device::cuda::CudaMemory> memory,
                         device::cuda::CudaMemory::Create(device, stream.get()));
  const absl::Status proof = cuda::ProveWgmma(*memory, stream.get());
  (void)cudaGetLastError();  // it is told here, and not to the next launch
  return proof;
}

}  // namespace baton::kernels
