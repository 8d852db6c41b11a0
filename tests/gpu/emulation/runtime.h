// The CUDA runtime, run on a CPU: streams, events, graphs and memory of several GPUs, and NCCL sums between
// the ranks of one process (scripted_nccl.cc). A test that links it runs the real host code of the backend.
//
// It behaves as badly as the real one may. Nothing runs before it must: operations wait in their streams, and
// a thread that waits, or asks for an event now and then, runs some of them, of any stream whose turn comes,
// in an order drawn from the seed; for a while one stream may stand still while others go on. An allocation,
// a release or the making of a graph may wait for the work of all GPUs and keep other threads from issuing
// anything meanwhile. Memory that was released may be given out again, or not. What can't be done while a
// stream is captured ends the process. So does a standstill: if all wait and nothing can run, it says what
// waits for what.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

namespace emulation {

struct MachineOptions {
  int gpus = 1;
  uint32_t seed = 1;  // of the order of streams
  // Compute capability.
  int major = 8, minor = 0;
  bool has_code = true;  // the build has code for it
  // The GPU that gives out released addresses again; the others never do. -1: none.
  int reusing_gpu = -1;
  // True if allocations, releases and graphs being made wait for all GPUs.
  bool allocations_wait = false;
};

// Begins afresh. Nothing of an earlier machine is in use any more.
void StartMachine(const MachineOptions& options);

// One operation in the order of a stream.
struct Operation {
  std::string what;                  // for messages
  std::function<bool()> ready = {};  // empty: at once
  std::function<void()> run = {};
};
// Puts it on the stream, or into the graph that the stream is captured for.
void Issue(cudaStream_t stream, Operation operation);
bool Capturing(cudaStream_t stream);
// GPUs on which this machine's process has a context: a thread that calls the runtime before it has chosen a
// GPU makes one on GPU 0.
std::set<int> Contexts();
// All that was issued has run, but for streams' waits for one another.
bool Idle();
// Runs `function` while no operation runs: for state that operations share.
void Exclusively(const std::function<void()>& function);
// Ends the process with `why`.
[[noreturn]] void Refuse(const std::string& why);

}  // namespace emulation
