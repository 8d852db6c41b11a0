// Preparations of a worker's process before it touches a GPU. For main() only.
#pragma once

#include <optional>

#include "worker/flags.h"

namespace baton::worker {

// If the process was started by another worker to check a GPU's prefill kernel (PrepareGpus), does that,
// prints what was wrong, and returns the exit code. Before flags are parsed.
std::optional<int> CheckPrefillIfAsked(int argc, char** argv);

// Before the engine is loaded, on the only thread: sees whether NCCL was told to do without RDMA; switches
// its RAS off, which would listen on a port that asks nobody who he is, and take each pair that ends for a
// fault; has the prefill kernel checked in a process of its own, and, where several GPUs share a step, has
// CUDA load all code at start. A kernel that is loaded when it is first launched may wait for its GPU, which
// may be waiting in a sum for the rank that loads.
void PrepareGpus(Options& options);

}  // namespace baton::worker
