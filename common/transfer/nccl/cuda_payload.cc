#include "common/transfer/nccl/cuda_payload.h"

#include <fmt/format.h>

#include <cstring>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/device/cuda/copy_pieces.h"
#include "common/device/cuda/status.h"
#include "common/transfer/nccl/payload_launch.h"

namespace baton::transfer {
namespace {

using device::cuda::CheckOk;
using device::cuda::CopyPieces;
using device::cuda::PieceTable;

// Where the checksums begin.
int64_t TrailerAt(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Launches `copy` for the pieces, a table at a time.
template <typename PieceSpan>
void ForTables(PieceSpan pieces, std::byte* staging, bool to_staging, cudaStream_t stream) {
  PieceTable table;
  int64_t at = 0;
  for (const auto piece : pieces) {
    auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(piece.data()));
    const auto bytes = static_cast<int64_t>(piece.size());
    BATON_CHECK(bytes % 16 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0)
        << " a piece of " << bytes << " bytes";
    table.pieces[table.count++] = {data, at, bytes};
    at += bytes;
    if (table.count == PieceTable::kMost) {
      CopyPieces(table, staging, to_staging, stream);
      table.count = 0;
    }
  }
  CopyPieces(table, staging, to_staging, stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaPayload>> CudaPayload::Create(
    std::vector<device::cuda::CudaMemory*> ranks) {
  device::cuda::CudaMemory& memory = *ranks.front();
  BATON_RETURN_IF_ERROR(device::cuda::Use(memory.device()));
  auto payload = std::unique_ptr<CudaPayload>(new CudaPayload(std::move(ranks)));
  BATON_ASSIGN_OR_RETURN(payload->packs_, device::cuda::MakeStream(true));
  BATON_ASSIGN_OR_RETURN(payload->packed_, device::cuda::MakeEvent());
  BATON_ASSIGN_OR_RETURN(payload->wrong_, memory.Allocate(sizeof(uint32_t)));
  BATON_ASSIGN_OR_RETURN(payload->seen_, device::cuda::AllocatePinned(sizeof(uint32_t)));
  return payload;
}

absl::StatusOr<device::Memory::Buffer> CudaPayload::Stage(int64_t bytes) {
  BATON_RETURN_IF_ERROR(device::cuda::Use(memory_.device()));
  void* data = nullptr;
  // Not by the engine's Memory, which clears what it gives, on the engine's stream: that could come after
  // what a transfer has written.
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error != cudaSuccess) (void)cudaGetLastError();  // it is told here, and not to the next launch
  BATON_RETURN_IF_ERROR(device::cuda::ToStatus(
      error, fmt::format("GPU {}: {} bytes of staging memory", memory_.device(), bytes)));
  return device::Memory::Buffer(static_cast<std::byte*>(data), device::Memory::Release{&memory_, bytes});
}

int64_t CudaPayload::TrailerBytes(int64_t bytes) const {
  const int64_t segments = (bytes + kSegmentBytes - 1) / kSegmentBytes;
  return TrailerAt(bytes) - bytes + segments * static_cast<int64_t>(sizeof(uint32_t));
}

void CudaPayload::Pack(ConstPieces pieces, std::byte* staging) {
  CheckOk(cudaSetDevice(memory_.device()), "using the GPU");
  int64_t bytes = 0;
  for (const auto piece : pieces) bytes += static_cast<int64_t>(piece.size());
  // Pieces lie on the GPUs of all ranks, whose own streams may be far behind this one.
  const int64_t mark = memory_.announced();
  for (const device::cuda::CudaMemory* rank : ranks_) rank->OrderAfterMark(mark, packs_.get());
  ForTables(pieces, staging, true, packs_.get());
  WriteCrcs(staging, bytes, reinterpret_cast<uint32_t*>(staging + TrailerAt(bytes)), packs_.get());
  CheckOk(cudaEventRecord(packed_.get(), packs_.get()), "marking a payload");
  // The pieces may be given back as soon as this returns, and filled again: by uploads, or by the next step.
  for (device::cuda::CudaMemory* rank : ranks_) {
    rank->UploadAfter(packed_.get());
    rank->ComputeAfter(packed_.get());
  }
}

void CudaPayload::OrderAfterPack(cudaStream_t transfer) {
  // The last Pack comes after all before it: one event says enough.
  CheckOk(cudaStreamWaitEvent(transfer, packed_.get(), 0), "ordering a payload");
}

absl::Status CudaPayload::Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) {
  BATON_RETURN_IF_ERROR(device::cuda::Use(memory_.device()));
  // Pieces lie on the GPUs of all ranks.
  for (const device::cuda::CudaMemory* rank : ranks_) memory_.UploadAfter(rank->fence());
  auto* wrong = reinterpret_cast<uint32_t*>(wrong_.get());
  CheckOk(cudaMemsetAsync(wrong, 0, sizeof *wrong, uploads_), "checking a payload");
  CompareCrcs(staging, bytes, reinterpret_cast<const uint32_t*>(staging + TrailerAt(bytes)), wrong, uploads_);
  CheckOk(cudaMemcpyAsync(seen_.get(), wrong, sizeof *wrong, cudaMemcpyDeviceToHost, uploads_),
          "checking a payload");
  CheckOk(cudaStreamSynchronize(uploads_), "checking a payload");
  uint32_t seen;
  std::memcpy(&seen, seen_.get(), sizeof seen);
  if (seen != 0) return absl::DataLossError("a payload's checksum is wrong");
  ForTables(pieces, const_cast<std::byte*>(staging), false, uploads_);
  // Staging memory is given back and may be received into at once.
  CheckOk(cudaStreamSynchronize(uploads_), "scattering a payload");
  return absl::OkStatus();
}

}  // namespace baton::transfer
