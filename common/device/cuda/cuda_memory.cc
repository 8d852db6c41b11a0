#include "common/device/cuda/cuda_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/device/cuda/copy_pieces.h"
#include "common/device/cuda/status.h"

namespace baton::device::cuda {
namespace {

// Leaves the calling thread on the device that it was on: it may be in the middle of another rank's step.
class OtherDevice {
 public:
  OtherDevice() { CheckOk(cudaGetDevice(&own_), "asking for the thread's GPU"); }
  ~OtherDevice() { CheckOk(cudaSetDevice(own_), "returning to the thread's GPU"); }
  OtherDevice(const OtherDevice&) = delete;
  OtherDevice& operator=(const OtherDevice&) = delete;

 private:
  int own_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMemory>> CudaMemory::Create(int device, cudaStream_t stream) {
  BATON_RETURN_IF_ERROR(Use(device));
  auto memory = std::unique_ptr<CudaMemory>(new CudaMemory(device, stream));
  BATON_ASSIGN_OR_RETURN(memory->uploads_, MakeStream(true));
  BATON_ASSIGN_OR_RETURN(memory->downloads_, MakeStream(true));
  BATON_ASSIGN_OR_RETURN(memory->fence_, MakeEvent());
  for (Event& mark : memory->marks_) {
    BATON_ASSIGN_OR_RETURN(mark, MakeEvent());
  }
  for (Buffer& gathered : memory->gathered_) {
    BATON_ASSIGN_OR_RETURN(gathered, memory->Allocate(kGatherBytes));
  }
  absl::MutexLock lock(&memory->copying_);
  for (Staging& staging : memory->staging_) {
    BATON_ASSIGN_OR_RETURN(staging.bytes, AllocatePinned(kStagingBytes));
    BATON_ASSIGN_OR_RETURN(staging.free, MakeEvent());
  }
  return memory;
}

std::string CudaMemory::name() const { return fmt::format("memory of GPU {}", device_); }

int64_t CudaMemory::available() const {
  size_t free = 0, total = 0;
  CheckOk(cudaSetDevice(device_), "using the GPU");
  CheckOk(cudaMemGetInfo(&free, &total), "asking for free memory");
  return static_cast<int64_t>(free);
}

absl::StatusOr<Memory::Buffer> CudaMemory::Allocate(int64_t bytes) {
  BATON_RETURN_IF_ERROR(Use(device_));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // it is told here, and not to the next launch
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(
        fmt::format("GPU {}: {} bytes asked for, {} of {} are free", device_, bytes, free, total));
  }
  BATON_RETURN_IF_ERROR(ToStatus(error, fmt::format("GPU {}: allocating {} bytes", device_, bytes)));
  Buffer buffer(static_cast<std::byte*>(memory), Release{this, bytes});
  BATON_RETURN_IF_ERROR(
      ToStatus(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream_), "clearing memory"));
  Fence();
  return buffer;
}

void CudaMemory::Fence() {
  CheckOk(cudaEventRecord(fence_.get(), stream_), "marking a fence");
  UploadAfter(fence_.get());
}

void CudaMemory::UploadAfter(cudaEvent_t event) {
  CheckOk(cudaStreamWaitEvent(uploads_.get(), event, 0), "ordering uploads");
}

int64_t CudaMemory::Mark() {
  const int64_t mark = marked_.load(std::memory_order_relaxed) + 1;
  CheckOk(cudaEventRecord(marks_[static_cast<size_t>(mark % kMarks)].get(), stream_), "marking KV");
  marked_.store(mark, std::memory_order_release);
  return mark;
}

void CudaMemory::OrderAfterMark(int64_t mark, cudaStream_t stream) const {
  const int64_t last = marked_.load(std::memory_order_acquire);
  BATON_CHECK(mark <= last && last - mark < kMarks) << " mark " << mark << " of " << last;
  CheckOk(cudaStreamWaitEvent(stream, marks_[static_cast<size_t>(mark % kMarks)].get(), 0),
          "waiting for a mark");
}

void CudaMemory::ComputeAfter(cudaEvent_t event) {
  CheckOk(cudaStreamWaitEvent(stream_, event, 0), "ordering a step");
}

void CudaMemory::Free(std::byte* data, int64_t bytes) {
  (void)cudaSetDevice(device_);
  (void)cudaFree(data);  // waits for what uses it
}

absl::Status CudaMemory::Upload(const void* host, std::byte* here, int64_t bytes) {
  const OtherDevice visit;
  BATON_RETURN_IF_ERROR(Use(device_));
  absl::MutexLock lock(&copying_);
  const auto* from = static_cast<const std::byte*>(host);
  for (int64_t done = 0, part = 0; done < bytes; ++part) {
    Staging& staging = staging_[part % 2];
    const int64_t count = std::min(kStagingBytes, bytes - done);
    BATON_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(staging.free.get()), "waiting for a copy"));
    std::memcpy(staging.bytes.get(), from + done, static_cast<size_t>(count));
    BATON_RETURN_IF_ERROR(
        ToStatus(cudaMemcpyAsync(here + done, staging.bytes.get(), static_cast<size_t>(count),
                                 cudaMemcpyHostToDevice, uploads_.get()),
                 "copying to the GPU"));
    BATON_RETURN_IF_ERROR(ToStatus(cudaEventRecord(staging.free.get(), uploads_.get()), "marking a copy"));
    done += count;
  }
  return ToStatus(cudaStreamSynchronize(uploads_.get()), "copying to the GPU");
}

absl::Status CudaMemory::Download(const std::byte* here, void* host, int64_t bytes) {
  const OtherDevice visit;
  BATON_RETURN_IF_ERROR(Use(device_));
  absl::MutexLock lock(&copying_);
  auto* to = static_cast<std::byte*>(host);
  // Part n + 1 crosses while part n is copied out of its buffer.
  const int64_t parts = (bytes + kStagingBytes - 1) / kStagingBytes;
  for (int64_t part = 0; part <= parts; ++part) {
    if (part < parts) {
      Staging& staging = staging_[part % 2];
      const int64_t count = std::min(kStagingBytes, bytes - part * kStagingBytes);
      BATON_RETURN_IF_ERROR(
          ToStatus(cudaMemcpyAsync(staging.bytes.get(), here + part * kStagingBytes,
                                   static_cast<size_t>(count), cudaMemcpyDeviceToHost, stream_),
                   "copying from the GPU"));
      BATON_RETURN_IF_ERROR(ToStatus(cudaEventRecord(staging.free.get(), stream_), "marking a copy"));
    }
    if (part > 0) {
      Staging& staging = staging_[(part - 1) % 2];
      const int64_t count = std::min(kStagingBytes, bytes - (part - 1) * kStagingBytes);
      BATON_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(staging.free.get()), "copying from the GPU"));
      std::memcpy(to + (part - 1) * kStagingBytes, staging.bytes.get(), static_cast<size_t>(count));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaMemory::SendPart(std::span<const Piece> part, std::byte* gathered, const Staging& staging) {
  PieceTable table;
  int64_t at = 0;
  for (const Piece& piece : part) {
    table.pieces[table.count++] = {const_cast<std::byte*>(piece.here), at, piece.bytes};
    at += piece.bytes;
    if (table.count < PieceTable::kMost && &piece != &part.back()) continue;
    CopyPieces(table, gathered, true, nullptr, downloads_.get());
    table.count = 0;
  }
  BATON_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(staging.bytes.get(), gathered, static_cast<size_t>(at),
                                                 cudaMemcpyDeviceToHost, downloads_.get()),
                                 "copying from the GPU"));
  return ToStatus(cudaEventRecord(staging.free.get(), downloads_.get()), "marking a copy");
}

absl::Status CudaMemory::DownloadMarked(int64_t mark, std::span<const Piece> pieces) {
  std::vector<std::vector<Piece>> parts(1);
  int64_t room = kGatherBytes;
  for (const Piece& piece : pieces) {
    BATON_CHECK(piece.bytes % 16 == 0 && reinterpret_cast<uintptr_t>(piece.here) % 16 == 0)
        << " a piece of " << piece.bytes << " bytes";
    for (int64_t done = 0; done < piece.bytes;) {
      if (room == 0) parts.emplace_back(), room = kGatherBytes;
      const int64_t count = std::min(room, piece.bytes - done);
      parts.back().push_back({piece.here + done, piece.host + done, count});
      room -= count;
      done += count;
    }
  }
  const OtherDevice visit;
  BATON_RETURN_IF_ERROR(Use(device_));
  OrderAfterMark(mark, downloads_.get());
  absl::MutexLock lock(&copying_);
  // Part n + 1 crosses while part n is copied out of its buffer.
  for (size_t part = 0; part <= parts.size(); ++part) {
    if (part < parts.size()) {
      BATON_RETURN_IF_ERROR(SendPart(parts[part], gathered_[part % 2].get(), staging_[part % 2]));
    }
    if (part == 0) continue;
    const Staging& staging = staging_[(part - 1) % 2];
    BATON_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(staging.free.get()), "copying from the GPU"));
    const std::byte* from = staging.bytes.get();
    for (const Piece& piece : parts[part - 1]) {
      std::memcpy(piece.host, from, static_cast<size_t>(piece.bytes));
      from += piece.bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::device::cuda
