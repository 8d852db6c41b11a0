#include "engine/device/cuda/handles.h"

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/status.h"

namespace baton::device::cuda {

namespace {

constexpr int kNone = -1;
// CUDA itself says GPU 0 of a thread that has chosen none.
thread_local int chosen = kNone;

}  // namespace

absl::Status Use(int device) {
  BATON_RETURN_IF_ERROR(ToStatus(cudaSetDevice(device), fmt::format("using GPU {}", device)));
  chosen = device;
  return absl::OkStatus();
}

void MustUse(int device) {
  const absl::Status used = Use(device);
  BATON_CHECK(used.ok()) << " " << used.ToString();
}

OtherDevice::OtherDevice() : own_(chosen) {}

OtherDevice::~OtherDevice() {
  if (own_ != kNone) MustUse(own_);
}

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
