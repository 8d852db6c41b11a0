#include "common/kernels/cuda/prefill_start.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/status.h"
#include "common/kernels/cuda/prefill_proof.h"
#include "spdlog/spdlog.h"

namespace baton::kernels::cuda {

absl::StatusOr<PrefillKernel> ProvedPrefill(int device, const cudaDeviceProp& properties) {
  const std::string gpu = fmt::format("{} ({})", device, properties.name);
  const PrefillChoice choice =
      ChoosePrefill(properties.major, properties.minor, gpu, [device]() -> absl::Status {
        BATON_ASSIGN_OR_RETURN(const device::cuda::Stream stream, device::cuda::MakeStream());
        BATON_ASSIGN_OR_RETURN(const std::unique_ptr<device::cuda::CudaMemory> memory,
                               device::cuda::CudaMemory::Create(device, stream.get()));
        return ProveWgmma(*memory, stream.get());
      });
  if (choice.warning.empty()) return choice.kernel;
  spdlog::warn("{}", choice.warning);
  // Errors that a kernel runs into stay with the context.
  if (cudaDeviceSynchronize() != cudaSuccess) {
    BATON_RETURN_IF_ERROR(
        device::cuda::ToStatus(cudaDeviceReset(), fmt::format("GPU {}: starting afresh", gpu)));
    BATON_RETURN_IF_ERROR(device::cuda::Use(device));
  }
  (void)cudaGetLastError();  // it is told above, and not to the next launch
  return choice.kernel;
}

}  // namespace baton::kernels::cuda
