#include "engine/kernels/cuda/cuda_kernels.h"
#include "engine/kernels/cuda/prefill_proof.h"
#include "tests/gpu/gpu.h"

namespace baton::gpu {

std::unique_ptr<kernels::Kernels> MakeKernels(bool graphs) {
  auto kernels = kernels::cuda::CudaKernels::Create({.device = 0, .graphs = graphs});
  EXPECT_TRUE(kernels.ok()) << kernels.status();
  return kernels.ok() ? *std::move(kernels) : nullptr;
}

bool HasWgmma() {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess &&
         kernels::cuda::HasWgmma(properties.major, properties.minor);
}

void UsePrefill(kernels::Kernels& kernels, kernels::cuda::PrefillKernel kernel) {
  static_cast<kernels::cuda::CudaKernels&>(kernels).set_prefill_kernel(kernel);
}

absl::Status Prove(kernels::Kernels& kernels) {
  return kernels::cuda::ProveWgmma(kernels.memory(),
                                   static_cast<kernels::cuda::CudaKernels&>(kernels).stream());
}

int64_t Replays(const kernels::Kernels& kernels) {
  return static_cast<const kernels::cuda::CudaKernels&>(kernels).replays();
}

}  // namespace baton::gpu
