// Stands before engine/kernels/cuda/launch_check.h in the emulation, where nothing is launched.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/gpu/emulation/fibers.h"

namespace baton::kernels::cuda {

inline void CheckLaunch(const char*) {}
inline cudaError_t LaunchError() { return cudaSuccess; }
template <typename Kernel>
cudaError_t AskForShared(Kernel*, size_t) {
  return cudaSuccess;
}
template <typename Kernel>
void AllowShared(Kernel*, size_t) {}
template <typename Kernel>
cudaError_t FindCode(Kernel*) {
  return emulation::HasCode() ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

}  // namespace baton::kernels::cuda
