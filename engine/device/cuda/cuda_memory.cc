#include "engine/device/cuda/cuda_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/copy_pieces.h"
#include "engine/device/cuda/cuda_outbound.h"
#include "engine/device/cuda/status.h"

namespace baton::device::cuda {
absl::StatusOr<std::unique_ptr<CudaMemory>> CudaMemory::Create(int device, cudaStream_t stream) {
  BATON_RETURN_IF_ERROR(Use(device));
  auto memory = std::unique_ptr<CudaMemory>(new CudaMemory(device, stream));
  cudaDeviceProp properties{};
  BATON_RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, device), "asking for a GPU's name"));
  memory->product_ = properties.name;
  BATON_ASSIGN_OR_RETURN(memory->uploads_, MakeStream(true));
  BATON_ASSIGN_OR_RETURN(memory->fence_, MakeEvent());
  for (Event& mark : memory->marks_) {
    BATON_ASSIGN_OR_RETURN(mark, MakeEvent());
  }
  absl::MutexLock uploading(&memory->uploading_);
  for (Buffer& landed : memory->landed_) {
    BATON_ASSIGN_OR_RETURN(landed, memory->Allocate(kPartBytes));
  }
  absl::MutexLock downloading(&memory->downloading_);
  for (Staging* staging : {&memory->up_[0], &memory->up_[1], &memory->down_[0], &memory->down_[1]}) {
    BATON_ASSIGN_OR_RETURN(staging->bytes, AllocatePinned(kPartBytes));
    BATON_ASSIGN_OR_RETURN(staging->free, MakeEvent());
  }
  return memory;
}

std::string CudaMemory::name() const { return fmt::format("memory of GPU {} ({})", device_, product_); }

int64_t CudaMemory::available() const {
  size_t free = 0, total = 0;
  MustUse(device_);
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
  (void)Use(device_);
  // For what uses it. cudaFree is known to wait itself, and not documented to.
  (void)cudaStreamSynchronize(stream_);
  (void)cudaFree(data);
}

absl::Status CudaMemory::Upload(const void* host, std::byte* here, int64_t bytes) {
  const OtherDevice visit;
  BATON_RETURN_IF_ERROR(Use(device_));
  absl::MutexLock lock(&uploading_);
  const auto* from = static_cast<const std::byte*>(host);
  for (int64_t done = 0, part = 0; done < bytes; ++part) {
    Staging& staging = up_[part % 2];
    const int64_t count = std::min(kPartBytes, bytes - done);
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
  absl::MutexLock lock(&downloading_);
  auto* to = static_cast<std::byte*>(host);
  // Part n + 1 crosses while part n is copied out of its buffer.
  const int64_t parts = (bytes + kPartBytes - 1) / kPartBytes;
  for (int64_t part = 0; part <= parts; ++part) {
    if (part < parts) {
      Staging& staging = down_[part % 2];
      const int64_t count = std::min(kPartBytes, bytes - part * kPartBytes);
      BATON_RETURN_IF_ERROR(
          ToStatus(cudaMemcpyAsync(staging.bytes.get(), here + part * kPartBytes, static_cast<size_t>(count),
                                   cudaMemcpyDeviceToHost, stream_),
                   "copying from the GPU"));
      BATON_RETURN_IF_ERROR(ToStatus(cudaEventRecord(staging.free.get(), stream_), "marking a copy"));
    }
    if (part > 0) {
      Staging& staging = down_[(part - 1) % 2];
      const int64_t count = std::min(kPartBytes, bytes - (part - 1) * kPartBytes);
      BATON_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(staging.free.get()), "copying from the GPU"));
      std::memcpy(to + (part - 1) * kPartBytes, staging.bytes.get(), static_cast<size_t>(count));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Outbound>> CudaMemory::MakeOutbound(int64_t bytes) {
  return CudaOutbound::Create(*this, bytes);
}

absl::Status CudaMemory::UploadPieces(const std::byte* host, std::span<const Piece> pieces) {
  const OtherDevice visit;
  BATON_RETURN_IF_ERROR(Use(device_));
  absl::MutexLock lock(&uploading_);
  PieceTable table;
  int64_t part = 0, at = 0;
  // Copies this part's staging buffer in one piece; a kernel then scatters it.
  const auto send = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(uploading_) -> absl::Status {
    Staging& staging = up_[part % 2];
    std::byte* landed = landed_[part % 2].get();
    BATON_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(landed, staging.bytes.get(), static_cast<size_t>(at),
                                                   cudaMemcpyHostToDevice, uploads_.get()),
                                   "copying to the GPU"));
    CopyPieces(table, landed, false, nullptr, uploads_.get());
    BATON_RETURN_IF_ERROR(ToStatus(cudaEventRecord(staging.free.get(), uploads_.get()), "marking a copy"));
    table.count = 0;
    at = 0;
    ++part;
    return absl::OkStatus();
  };
  for (const Piece& piece : pieces) {
    BATON_CHECK(piece.bytes % 16 == 0 && reinterpret_cast<uintptr_t>(piece.here) % 16 == 0)
        << " a piece of " << piece.bytes << " bytes";
    for (int64_t done = 0; done < piece.bytes;) {
      if (at == kPartBytes || table.count == PieceTable::kMost) {
        BATON_RETURN_IF_ERROR(send());
      }
      if (at == 0) {
        BATON_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(up_[part % 2].free.get()), "waiting for a copy"));
      }
      const int64_t count = std::min(kPartBytes - at, piece.bytes - done);
      std::memcpy(up_[part % 2].bytes.get() + at, host + piece.at + done, static_cast<size_t>(count));
      table.pieces[table.count++] = {piece.here + done, at, count};
      at += count;
      done += count;
    }
  }
  if (table.count > 0) BATON_RETURN_IF_ERROR(send());
  // The last two parts: those before them have been waited for.
  for (Staging& staging : up_) {
    BATON_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(staging.free.get()), "copying to the GPU"));
  }
  return absl::OkStatus();
}

}  // namespace baton::device::cuda
