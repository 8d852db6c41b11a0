// Checks that every launcher makes around a launch. For *.cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

namespace baton::kernels::cuda {

// A launch fails only if its grid is wrong or the device is lost: either way nothing that follows can be
// trusted.
inline void CheckLaunch(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "launching %s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

// For a launch that may be refused, and is answered for by the caller.
inline cudaError_t LaunchError() { return cudaGetLastError(); }

// More than 48 KB of shared memory have to be asked for, once per kernel and device; it costs less than
// keeping count of where it was done.
template <typename Kernel>
cudaError_t AskForShared(Kernel* kernel, size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}
template <typename Kernel>
void AllowShared(Kernel* kernel, size_t bytes) {
  const cudaError_t error = AskForShared(kernel, bytes);
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "asking for %zu bytes of shared memory: %s\n", bytes, cudaGetErrorString(error));
  std::abort();
}

// cudaSuccess if this build has code of the kernel for the current GPU.
template <typename Kernel>
cudaError_t FindCode(Kernel* kernel) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  if (error != cudaSuccess) (void)cudaGetLastError();  // it is told here, and not to the next launch
  return error;
}

}  // namespace baton::kernels::cuda
