#include "common/kernels/cuda/draw_queue.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/device/cuda/status.h"
#include "common/kernels/cuda/launch.h"
#include "common/kernels/cuda/plan.h"

namespace baton::kernels::cuda {

using device::cuda::CheckOk;

absl::StatusOr<DrawQueue> DrawQueue::Create(cudaStream_t stream, device::Memory& memory) {
  DrawQueue queue(stream, memory);
  for (Slot& slot : queue.slots_) {
    BATON_ASSIGN_OR_RETURN(slot.home, device::cuda::MakeEvent());
  }
  BATON_RETURN_IF_ERROR(queue.Reserve(kMostGraphRows));
  return queue;
}

absl::Status DrawQueue::Reserve(int64_t draws) {
  BATON_ASSIGN_OR_RETURN(asked_, memory_->Allocate(draws * static_cast<int64_t>(sizeof(RowDraw))));
  BATON_ASSIGN_OR_RETURN(tokens_, memory_->Allocate(draws * static_cast<int64_t>(sizeof(int32_t))));
  capacity_ = draws;
  return absl::OkStatus();
}

absl::Status DrawQueue::Reserve(Slot& slot, int64_t draws) {
  BATON_ASSIGN_OR_RETURN(slot.asked,
                         device::cuda::AllocatePinned(draws * static_cast<int64_t>(sizeof(RowDraw))));
  BATON_ASSIGN_OR_RETURN(slot.given,
                         device::cuda::AllocatePinned(draws * static_cast<int64_t>(sizeof(int32_t))));
  slot.capacity = draws;
  return absl::OkStatus();
}

bool DrawQueue::Launch(Matrix logits, std::span<const RowDraw> draws) {
  BATON_CHECK(logits.dtype == tensor::DType::kF32 && launched_ - finished_ < slots_.size());
  const auto count = std::ssize(draws);
  const bool moved = count > capacity_;
  if (moved) {
    // What still reads the old memory is waited for as it is freed.
    const absl::Status grown = Reserve(2 * count);
    BATON_CHECK(grown.ok()) << " draws: " << grown.ToString();
  }
  Slot& slot = slots_[launched_++ % slots_.size()];
  if (count > slot.capacity) {
    const absl::Status grown = Reserve(slot, capacity_);
    BATON_CHECK(grown.ok()) << " draws: " << grown.ToString();
  }
  slot.count = count;
  std::memcpy(slot.asked.get(), draws.data(), draws.size_bytes());
  CheckOk(
      cudaMemcpyAsync(asked_.get(), slot.asked.get(), draws.size_bytes(), cudaMemcpyHostToDevice, stream_),
      "sending draws");
  cuda::Draw(static_cast<const float*>(logits.data), logits.stride, static_cast<int>(logits.cols),
             reinterpret_cast<const RowDraw*>(asked_.get()), static_cast<int>(count),
             reinterpret_cast<int32_t*>(tokens_.get()), stream_);
  CheckOk(cudaMemcpyAsync(slot.given.get(), tokens_.get(), static_cast<size_t>(count) * sizeof(int32_t),
                          cudaMemcpyDeviceToHost, stream_),
          "bringing tokens home");
  CheckOk(cudaEventRecord(slot.home.get(), stream_), "bringing tokens home");
  return moved;
}

void DrawQueue::Finish(std::span<TokenId> tokens) {
  BATON_CHECK(finished_ < launched_);
  const Slot& slot = slots_[finished_++ % slots_.size()];
  BATON_CHECK_EQ(std::ssize(tokens), slot.count);
  CheckOk(cudaEventSynchronize(slot.home.get()), "waiting for tokens");
  const auto* ids = reinterpret_cast<const int32_t*>(slot.given.get());
  std::transform(ids, ids + slot.count, tokens.begin(), [](int32_t id) { return TokenId(id); });
}

}  // namespace baton::kernels::cuda
