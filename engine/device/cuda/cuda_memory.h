// CudaMemory: one GPU's memory, with the stream in whose order its bytes are cleared and downloaded, and one
// more, beside a step under way, in which they are uploaded. Copies go through page-locked buffers in parts,
// so that the copy of one overlaps the reading of the next (weights come straight from the mapped file);
// parts are small, because the tables of a step queue behind them. Copies may be asked for on any thread, all
// else on that of the GPU's engine.
#pragma once

#include <array>
#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/device/cuda/handles.h"
#include "engine/device/memory.h"

namespace baton::device::cuda {

class CudaMemory final : public Memory {
 public:
  // `stream` outlives it.
  static absl::StatusOr<std::unique_ptr<CudaMemory>> Create(int device, cudaStream_t stream);

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  // The stream for bytes that arrive from elsewhere: ordered as Upload is.
  cudaStream_t uploads() const { return uploads_.get(); }
  std::string name() const override;
  bool host() const override { return false; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override;
  int64_t available() const override;
  absl::Status Upload(const void* host, std::byte* here, int64_t bytes) override;
  absl::Status Download(const std::byte* here, void* host, int64_t bytes) override;
  // Neither while the stream is captured.
  void Fence() override;
  int64_t Mark() override;
  void Announce(int64_t mark) override { announced_.store(mark, std::memory_order_release); }
  int64_t announced() const override { return announced_.load(std::memory_order_acquire); }
  absl::StatusOr<std::unique_ptr<Outbound>> MakeOutbound(int64_t bytes) override;
  // A kernel puts the pieces into their places, so that few copies cross the bus.
  absl::Status UploadPieces(const std::byte* host, std::span<const Piece> pieces) override;
  // Makes `stream`, of any GPU, wait for the operations before `mark`. Any thread.
  void OrderAfterMark(int64_t mark, cudaStream_t stream) const;
  // Orders operations issued from now on after an event that was recorded in a stream of any GPU. Not while
  // the stream is captured.
  void ComputeAfter(cudaEvent_t event);
  // The last one.
  cudaEvent_t fence() const { return fence_.get(); }
  // The same, of an event that was recorded in a stream of any GPU.
  void UploadAfter(cudaEvent_t event);

 private:
  CudaMemory(int device, cudaStream_t stream) : device_(device), stream_(stream) {}
  void Free(std::byte* data, int64_t bytes) override;

  // One of the two buffers that bytes pass through, and the event after which it may be written again.
  struct Staging {
    PinnedBytes bytes;
    Event free;
  };
  static constexpr int64_t kPartBytes = int64_t{2} << 20;

  const int device_;
  std::string product_;  // as the driver names it; a slice of a GPU has " MIG " in it
  const cudaStream_t stream_;
  Stream uploads_;
  Event fence_;
  std::array<Event, kMarks> marks_;  // mark n is marks_[n % kMarks]
  std::atomic<int64_t> marked_{0}, announced_{0};
  // A copy may be asked for by another rank's thread, and an upload beside a download.
  absl::Mutex uploading_, downloading_;
  Staging up_[2] ABSL_GUARDED_BY(uploading_);
  Staging down_[2] ABSL_GUARDED_BY(downloading_);
  std::array<Buffer, 2> landed_ ABSL_GUARDED_BY(uploading_);  // where parts of UploadPieces land
};

}  // namespace baton::device::cuda
