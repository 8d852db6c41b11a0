// Owners of CUDA's and cuBLAS's handles, one per kind: move-only, released at the end of scope, on the device
// that was current when they were made. Used by the thread that owns the device's engine, except for an
// Event, which other threads may wait for.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "absl/status/statusor.h"

namespace baton::device::cuda {

// Makes `device` the calling thread's: every thread does this before its first call of CUDA, which would make
// a context on GPU 0 otherwise, some hundred MB of its memory. Cheap if it is already.
absl::Status Use(int device);
// The same, where there is no way on without it.
void MustUse(int device);

// Leaves the calling thread, at the end of scope, on the device that it used before: it may be in the middle
// of another rank's step. A thread that had used none stays where it is.
class OtherDevice {
 public:
  OtherDevice();
  ~OtherDevice();
  OtherDevice(const OtherDevice&) = delete;
  OtherDevice& operator=(const OtherDevice&) = delete;

 private:
  const int own_;
};

struct DestroyStream {
  void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
};
struct DestroyGraphExec {
  void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
};
struct DestroyBlas {
  void operator()(cublasLtHandle_t handle) const { (void)cublasLtDestroy(handle); }
};
struct FreeHost {
  void operator()(void* memory) const { (void)cudaFreeHost(memory); }
};

using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;
using GraphExec = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraphExec>;
using Blas = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, DestroyBlas>;
// Page-locked host memory: what copies can overlap with kernels.
using PinnedBytes = std::unique_ptr<std::byte[], FreeHost>;

// Does not wait for the legacy default stream. Urgent: its kernels start before those of others that wait.
absl::StatusOr<Stream> MakeStream(bool urgent = false);
absl::StatusOr<Event> MakeEvent(bool timed = false);
absl::StatusOr<Blas> MakeBlas();
absl::StatusOr<PinnedBytes> AllocatePinned(int64_t bytes);

}  // namespace baton::device::cuda
