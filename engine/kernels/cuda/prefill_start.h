// Chooses a GPU's prefill kernel at start: the one that CudaOptions name, or the one that proved right
// (prefill_choice.h), with a warning for the operator where the faster one did not. The proof is made in a
// process of its own if CudaOptions have a command for it.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "engine/kernels/cuda/prefill_choice.h"
#include "engine/kernels/kernels.h"

namespace baton::kernels::cuda {

// To be called before anything is on the GPU. INVALID_ARGUMENT: the GPU does not have the kernel that was
// asked for. INTERNAL: a proof in this process has cost it the GPU.
absl::StatusOr<PrefillKernel> StartPrefill(const CudaOptions& options, const cudaDeviceProp& properties);

}  // namespace baton::kernels::cuda
