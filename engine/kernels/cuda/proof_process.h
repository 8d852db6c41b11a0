// Runs the check of a GPU's prefill kernel (ProveCudaPrefill) in a process of its own: a kernel that reads
// where it may not leaves its process without the GPU, and one that never ends can't be stopped from within.
// No CUDA in here: it is built and tested everywhere. Any thread.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::kernels::cuda {

// Runs `command` with the device's number behind it. OK if it ends with 0. INTERNAL: what it printed, or the
// signal that ended it. DEADLINE_EXCEEDED: it did not end within `limit`, and was killed.
absl::Status RunProof(std::span<const std::string> command, int device, absl::Duration limit);

}  // namespace baton::kernels::cuda
