#include "common/device/cuda/handles.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/device/cuda/status.h"

namespace baton::device::cuda {

absl::Status Use(int device) { return ToStatus(cudaSetDevice(device), fmt::format("using GPU {}", device)); }

OtherDevice::OtherDevice() { CheckOk(cudaGetDevice(&own_), "asking for the thread's GPU"); }

OtherDevice::~OtherDevice() { CheckOk(cudaSetDevice(own_), "returning to the thread's GPU"); }

absl::StatusOr<Stream> MakeStream(bool urgent) {
  int least = 0, greatest = 0;
  BATON_RETURN_IF_ERROR(
      ToStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for the priorities of streams"));
  cudaStream_t stream = nullptr;
  BATON_RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
               "creating a stream"));
  return Stream(stream);
}

absl::StatusOr<Event> MakeEvent(bool timed) {
  cudaEvent_t event = nullptr;
  BATON_RETURN_IF_ERROR(
      ToStatus(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
               "creating an event"));
  return Event(event);
}

absl::StatusOr<Blas> MakeBlas() {
  cublasLtHandle_t handle = nullptr;
  BATON_RETURN_IF_ERROR(ToStatus(cublasLtCreate(&handle), "starting cuBLASLt"));
  return Blas(handle);
}

absl::StatusOr<PinnedBytes> AllocatePinned(int64_t bytes) {
  void* memory = nullptr;
  BATON_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&memory, static_cast<size_t>(bytes)),
                                 fmt::format("page-locking {} bytes of host memory", bytes)));
  return PinnedBytes(static_cast<std::byte*>(memory));
}

}  // namespace baton::device::cuda
