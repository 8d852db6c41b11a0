#include "common/kernels/cuda/cuda_kernels.h"
#include "tests/gpu/gpu.h"

namespace baton::gpu {

std::unique_ptr<kernels::Kernels> MakeKernels(bool graphs) {
  auto kernels = kernels::cuda::CudaKernels::Create({.device = 0, .graphs = graphs});
  EXPECT_TRUE(kernels.ok()) << kernels.status();
  return kernels.ok() ? *std::move(kernels) : nullptr;
}

int64_t Replays(const kernels::Kernels& kernels) {
  return static_cast<const kernels::cuda::CudaKernels&>(kernels).replays();
}

}  // namespace baton::gpu
