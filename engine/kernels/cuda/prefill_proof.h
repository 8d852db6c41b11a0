// The proof that the wgmma kernel computes on this very GPU what the mma kernel computes: both are run on
// small random ragged batches, of either head size, of bf16 and f16, over KV of every precision, with a
// window and without, and compared. It takes a fraction of a second and is made at start, before anything
// else is in the GPU's memory.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "engine/device/memory.h"
#include "engine/kernels/cuda/launch.h"

namespace baton::kernels::cuda {

// `stream`: that in whose order `memory` copies. `wgmma`: the kernel, or what a test puts in its place. OK;
// or what differs, with the case; or what failed, after which the device may be lost to this process.
absl::Status ProveWgmma(device::Memory& memory, cudaStream_t stream,
                        decltype(&WgmmaPrefillAttention) wgmma = &WgmmaPrefillAttention);

}  // namespace baton::kernels::cuda
