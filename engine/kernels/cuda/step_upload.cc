#include "engine/kernels/cuda/step_upload.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "engine/device/cuda/status.h"
#include "engine/kernels/cuda/views.h"

namespace baton::kernels::cuda {

using device::cuda::CheckOk;

namespace {

// Enough for 256 sequences of 64K tokens: 4 MiB.
constexpr int64_t kFirstWords = int64_t{1} << 20;

}  // namespace

bool StepUpload::Reserve(int64_t words) {
  if (words <= capacity_) return false;
  capacity_ = std::max(kFirstWords, 2 * words);
  const int64_t bytes = capacity_ * static_cast<int64_t>(sizeof(int32_t));
  CheckOk(cudaStreamSynchronize(stream_), "waiting for the last table");
  absl::StatusOr<device::Memory::Buffer> device = memory_.Allocate(bytes);
  BATON_CHECK(device.ok()) << " step table: " << device.status().ToString();
  absl::StatusOr<device::cuda::PinnedBytes> host = device::cuda::AllocatePinned(bytes);
  BATON_CHECK(host.ok()) << " step table: " << host.status().ToString();
  if (copied_ == nullptr) {
    absl::StatusOr<device::cuda::Event> event = device::cuda::MakeEvent();
    BATON_CHECK(event.ok()) << " " << event.status().ToString();
    copied_ = *std::move(event);
  }
  device_ = *std::move(device);
  host_ = *std::move(host);
  return true;
}

bool StepUpload::Send(const StepTable& table) {
  const bool moved = Reserve(static_cast<int64_t>(table.words().size()));
  CheckOk(cudaEventSynchronize(copied_.get()), "waiting for the last table");
  std::memcpy(host_.get(), table.words().data(), table.words().size_bytes());
  CheckOk(cudaMemcpyAsync(device_.get(), host_.get(), table.words().size_bytes(), cudaMemcpyHostToDevice,
                          stream_),
          "sending a step's table");
  CheckOk(cudaEventRecord(copied_.get(), stream_), "sending a step's table");
  view_ = ViewOf(table, reinterpret_cast<const int32_t*>(device_.get()));
  return moved;
}

}  // namespace baton::kernels::cuda
