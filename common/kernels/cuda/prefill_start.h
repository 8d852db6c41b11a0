// Chooses a GPU's prefill kernel at start (prefill_choice.h), with the proof made on the GPU itself, and
// warns the operator where it failed. To be called before anything is on the GPU: a kernel that fails may
// take the process's context with it, and then a fresh one is made.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "common/kernels/cuda/prefill_choice.h"

namespace baton::kernels::cuda {

// Fails only if the device is lost for good.
absl::StatusOr<PrefillKernel> ProvedPrefill(int device, const cudaDeviceProp& properties);

}  // namespace baton::kernels::cuda
