#include "engine/device/cuda/cuda_outbound.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/copy_pieces.h"
#include "engine/device/cuda/cuda_memory.h"
#include "engine/device/cuda/status.h"

namespace baton::device::cuda {

absl::StatusOr<std::unique_ptr<CudaOutbound>> CudaOutbound::Create(CudaMemory& memory, int64_t bytes) {
  const OtherDevice visit;
  BATON_RETURN_IF_ERROR(Use(memory.device()));
  auto outbound = std::unique_ptr<CudaOutbound>(new CudaOutbound(memory, bytes));
  BATON_ASSIGN_OR_RETURN(outbound->slab_, memory.Allocate(bytes));
  BATON_ASSIGN_OR_RETURN(outbound->gathers_, MakeStream(true));
  BATON_ASSIGN_OR_RETURN(outbound->copies_, MakeStream(true));
  for (int i = 0; i < 2; ++i) {
    BATON_ASSIGN_OR_RETURN(outbound->staged_[i], AllocatePinned(kPartBytes));
    BATON_ASSIGN_OR_RETURN(outbound->copied_[i], MakeEvent());
  }
  absl::MutexLock lock(&outbound->mutex_);
  for (size_t i = 0; i < kMostParcels; ++i) {
    BATON_ASSIGN_OR_RETURN(Event event, MakeEvent());
    outbound->spare_.push_back(std::move(event));
  }
  return outbound;
}

CudaOutbound::~CudaOutbound() {
  const OtherDevice visit;
  MustUse(memory_.device());
  CheckOk(cudaStreamSynchronize(gathers_.get()), "gathering KV");
}

int64_t CudaOutbound::Free(int64_t room) const {
  if (parcels_.size() == kMostParcels) return -1;
  if (parcels_.empty()) return 0;
  const int64_t first = parcels_.front().begin;
  const int64_t end = parcels_.back().begin + parcels_.back().room;
  if (end > first) {  // free: [end, bytes_) and [0, first)
    if (room <= bytes_ - end) return end;
    return room < first ? 0 : -1;
  }
  return room < first - end ? end : -1;  // never full, so that `end` tells the two cases apart
}

uint64_t CudaOutbound::Gather(int64_t mark, std::span<const Piece> pieces) {
  const OtherDevice visit;
  MustUse(memory_.device());
  Parcel parcel{.pieces = {pieces.begin(), pieces.end()}};
  for (const Piece& piece : pieces) parcel.bytes += piece.bytes;
  parcel.room = std::max<int64_t>(1, (parcel.bytes + 255) / 256) * 256;
  BATON_CHECK(parcel.room <= bytes_) << " a payload of " << parcel.bytes << " bytes";
  {
    absl::MutexLock lock(&mutex_);
    const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Free(parcel.room) >= 0; };
    mutex_.Await(absl::Condition(&fits));
    parcel.number = ++gathered_;
    parcel.begin = Free(parcel.room);
    parcel.gathered = std::move(spare_.back());
    spare_.pop_back();
  }
  memory_.OrderAfterMark(mark, gathers_.get());
  PieceTable table;
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    BATON_CHECK(piece.bytes % 16 == 0 && reinterpret_cast<uintptr_t>(piece.here) % 16 == 0)
        << " a piece of " << piece.bytes << " bytes";
    table.pieces[table.count++] = {const_cast<std::byte*>(piece.here), at, piece.bytes};
    at += piece.bytes;
    if (table.count < PieceTable::kMost) continue;
    CopyPieces(table, slab_.get() + parcel.begin, true, nullptr, gathers_.get());
    table.count = 0;
  }
  CopyPieces(table, slab_.get() + parcel.begin, true, nullptr, gathers_.get());
  CheckOk(cudaEventRecord(parcel.gathered.get(), gathers_.get()), "marking what leaves");
  // The pieces may be given back as soon as this returns, and filled again: by uploads, or by the next step.
  memory_.UploadAfter(parcel.gathered.get());
  memory_.ComputeAfter(parcel.gathered.get());
  absl::MutexLock lock(&mutex_);
  parcels_.push_back(std::move(parcel));
  return parcels_.back().number;
}

void CudaOutbound::Take(uint64_t number, std::byte* payload) {
  const OtherDevice visit;
  MustUse(memory_.device());
  const Parcel* parcel = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    BATON_CHECK(!parcels_.empty() && parcels_.front().number == number) << " payload " << number;
    parcel = &parcels_.front();  // a deque's elements stay where they are when others are added
  }
  CheckOk(cudaStreamWaitEvent(copies_.get(), parcel->gathered.get(), 0), "ordering what leaves");
  const std::byte* from = slab_.get() + parcel->begin;
  // Part n + 1 crosses while part n is copied out of its buffer.
  const int64_t parts = (parcel->bytes + kPartBytes - 1) / kPartBytes;
  auto piece = parcel->pieces.begin();
  int64_t copied = 0;  // of that piece
  for (int64_t part = 0; part <= parts; ++part) {
    if (part < parts) {
      const int64_t count = std::min(kPartBytes, parcel->bytes - part * kPartBytes);
      CheckOk(cudaMemcpyAsync(staged_[part % 2].get(), from + part * kPartBytes, static_cast<size_t>(count),
                              cudaMemcpyDeviceToHost, copies_.get()),
              "copying from the GPU");
      CheckOk(cudaEventRecord(copied_[part % 2].get(), copies_.get()), "marking a copy");
    }
    if (part == 0) continue;
    CheckOk(cudaEventSynchronize(copied_[(part - 1) % 2].get()), "copying from the GPU");
    const std::byte* staged = staged_[(part - 1) % 2].get();
    int64_t left = std::min(kPartBytes, parcel->bytes - (part - 1) * kPartBytes);
    while (left > 0) {
      const int64_t count = std::min(left, piece->bytes - copied);
      std::memcpy(payload + piece->at + copied, staged, static_cast<size_t>(count));
      staged += count;
      left -= count;
      copied += count;
      if (copied == piece->bytes) ++piece, copied = 0;
    }
  }
  absl::MutexLock lock(&mutex_);
  spare_.push_back(std::move(parcels_.front().gathered));
  parcels_.pop_front();
}

}  // namespace baton::device::cuda
