#include "transfer/nccl/cuda_payload.h"

#include <fmt/format.h>

#include <cstring>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/copy_pieces.h"
#include "engine/device/cuda/status.h"
#include "transfer/nccl/payload_launch.h"

namespace baton::transfer {
namespace {

using device::cuda::CheckOk;
using device::cuda::CopyPieces;
using device::cuda::PieceTable;

// Where the checksums begin.
int64_t TrailerAt(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Launches `copy` for the pieces, a table at a time.
template <typename PieceSpan>
void ForTables(PieceSpan pieces, std::byte* staging, bool to_staging, const uint32_t* unless,
               cudaStream_t stream) {
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
      CopyPieces(table, staging, to_staging, unless, stream);
      table.count = 0;
    }
  }
  CopyPieces(table, staging, to_staging, unless, stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaPayload>> CudaPayload::Create(
    std::vector<device::cuda::CudaMemory*> ranks) {
  device::cuda::CudaMemory& memory = *ranks.front();
  BATON_RETURN_IF_ERROR(device::cuda::Use(memory.device()));
  auto payload = std::unique_ptr<CudaPayload>(new CudaPayload(std::move(ranks)));
  BATON_ASSIGN_OR_RETURN(payload->packing_, device::cuda::MakeStream(true));
  for (size_t i = 0; i < kMostPacks + kMostUnpacks; ++i) {
    BATON_ASSIGN_OR_RETURN(device::cuda::Event event, device::cuda::MakeEvent());
    payload->spare_.push_back(std::move(event));
  }
  BATON_ASSIGN_OR_RETURN(payload->wrong_, memory.Allocate(kMostUnpacks * sizeof(uint32_t)));
  BATON_ASSIGN_OR_RETURN(payload->seen_, device::cuda::AllocatePinned(kMostUnpacks * sizeof(uint32_t)));
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

uint64_t CudaPayload::Pack(ConstPieces pieces, std::byte* staging) {
  device::cuda::MustUse(memory_.device());
  // Packs wait for steps that have been issued, so the first of them is about to end.
  if (packs_.size() >= kMostPacks) {
    CheckOk(cudaEventSynchronize(packs_.front().get()), "packing");
    BATON_CHECK(TakeFirst(packs_));
    ++packed_;
  }
  int64_t bytes = 0;
  for (const auto piece : pieces) bytes += static_cast<int64_t>(piece.size());
  // Pieces lie on the GPUs of all ranks, whose own streams may be far behind this one.
  const int64_t mark = memory_.announced();
  for (const device::cuda::CudaMemory* rank : ranks_) rank->OrderAfterMark(mark, packing_.get());
  ForTables(pieces, staging, true, nullptr, packing_.get());
  WriteCrcs(staging, bytes, reinterpret_cast<uint32_t*>(staging + TrailerAt(bytes)), packing_.get());
  const cudaEvent_t packed = Mark(packs_, packing_.get());
  // The pieces may be given back as soon as this returns, and filled again: by uploads, or by the next step.
  for (device::cuda::CudaMemory* rank : ranks_) {
    rank->UploadAfter(packed);
    rank->ComputeAfter(packed);
  }
  return packed_ + packs_.size();
}

bool CudaPayload::Packed(uint64_t number) {
  while (packed_ < number && !packs_.empty()) {
    if (!TakeFirst(packs_)) return false;
    ++packed_;
  }
  return packed_ >= number;
}

cudaEvent_t CudaPayload::Mark(std::deque<device::cuda::Event>& marks, cudaStream_t stream) {
  BATON_CHECK(!spare_.empty());
  marks.push_back(std::move(spare_.back()));
  spare_.pop_back();
  CheckOk(cudaEventRecord(marks.back().get(), stream), "marking a payload");
  return marks.back().get();
}

bool CudaPayload::TakeFirst(std::deque<device::cuda::Event>& marks) {
  const cudaError_t state = cudaEventQuery(marks.front().get());
  if (state == cudaErrorNotReady) return false;
  CheckOk(state, "moving a payload");
  spare_.push_back(std::move(marks.front()));
  marks.pop_front();
  return true;
}

uint64_t CudaPayload::Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) {
  device::cuda::MustUse(memory_.device());
  const uint64_t number = unpacked_ + unpacks_.size() + 1;
  // So many chunks are hundreds of MB: the first of them is about to end.
  if (unpacks_.size() >= kMostUnpacks) CheckOk(cudaEventSynchronize(unpacks_.front().get()), "unpacking");
  BATON_CHECK(unpacks_.size() <= kMostUnpacks);
  // Pieces lie on the GPUs of all ranks.
  for (const device::cuda::CudaMemory* rank : ranks_) memory_.UploadAfter(rank->fence());
  auto* const wrong = reinterpret_cast<uint32_t*>(wrong_.get()) + number % kMostUnpacks;
  CheckOk(cudaMemsetAsync(wrong, 0, sizeof *wrong, uploads_), "checking a payload");
  CompareCrcs(staging, bytes, reinterpret_cast<const uint32_t*>(staging + TrailerAt(bytes)), wrong, uploads_);
  ForTables(pieces, const_cast<std::byte*>(staging), false, wrong, uploads_);
  CheckOk(cudaMemcpyAsync(Seen(number), wrong, sizeof *wrong, cudaMemcpyDeviceToHost, uploads_),
          "checking a payload");
  (void)Mark(unpacks_, uploads_);
  return number;
}

std::optional<absl::Status> CudaPayload::Unpacked(uint64_t number) {
  BATON_CHECK_EQ(number, unpacked_ + 1);
  if (!TakeFirst(unpacks_)) return std::nullopt;
  ++unpacked_;
  uint32_t seen;
  std::memcpy(&seen, Seen(number), sizeof seen);
  if (seen != 0) return absl::DataLossError("a payload's checksum is wrong");
  return absl::OkStatus();
}

}  // namespace baton::transfer
