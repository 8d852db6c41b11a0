#include "engine/kernels/cuda/draw_queue.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/cuda/status.h"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/plan.h"

namespace baton::kernels::cuda {

using device::cuda::CheckOk;

absl::StatusOr<DrawQueue> DrawQueue::Create(int device, cudaStream_t stream, device::Memory& memory,
                                            std::function<void()> moved) {
  DrawQueue queue(device, stream, memory, std::move(moved));
  for (Transfer& transfer : queue.transfers_) {
    BATON_ASSIGN_OR_RETURN(transfer.arrived, device::cuda::MakeEvent());
  }
  BATON_RETURN_IF_ERROR(queue.ReserveTable(kMaxGraphRows * static_cast<int64_t>(sizeof(RowDraw))));
  BATON_RETURN_IF_ERROR(queue.ReserveTokens(kMaxGraphRows));
  return queue;
}

absl::Status DrawQueue::Reserve(Transfer& transfer, int64_t table_bytes, int64_t draws) {
  if (table_bytes > transfer.asked_bytes) {
    transfer.asked_bytes = std::max(2 * table_bytes, kMaxGraphRows * static_cast<int64_t>(sizeof(RowDraw)));
    BATON_ASSIGN_OR_RETURN(transfer.asked, device::cuda::AllocatePinned(transfer.asked_bytes));
  }
  if (draws > transfer.capacity) {
    transfer.capacity = std::max(2 * draws, kMaxGraphRows);
    BATON_ASSIGN_OR_RETURN(transfer.given, device::cuda::AllocatePinned(
                                               transfer.capacity * static_cast<int64_t>(sizeof(int32_t))));
  }
  return absl::OkStatus();
}

absl::Status DrawQueue::ReserveTable(int64_t bytes) {
  BATON_ASSIGN_OR_RETURN(asked_, memory_->Allocate(bytes));
  asked_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status DrawQueue::ReserveTokens(int64_t draws) {
  constexpr auto kWord = static_cast<int64_t>(sizeof(int32_t));
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer grown, memory_->Allocate(draws * kWord));
  if (tokens_ != nullptr) {
    // The step that comes may take what the last launch drew.
    CheckOk(cudaMemcpyAsync(grown.get(), tokens_.get(), static_cast<size_t>(capacity_ * kWord),
                            cudaMemcpyDeviceToDevice, stream_),
            "moving tokens");
  }
  tokens_ = std::move(grown);
  // Zeros at first, and what a draw needs to be 0 it leaves at 0.
  BATON_ASSIGN_OR_RETURN(states_, memory_->Allocate(draws * kDrawStateBytes));
  capacity_ = draws;
  return absl::OkStatus();
}

bool DrawQueue::CanSample(int64_t vocabulary) const { return vocabulary <= kMaxSampledVocabulary; }

bool DrawQueue::ReservePenaltySlots(int32_t slots, int64_t vocabulary) {
  device::cuda::MustUse(device_);
  if (slots <= penalty_slots_ && vocabulary == vocabulary_) return true;
  absl::StatusOr<device::Memory::Buffer> grown =
      memory_->Allocate(slots * vocabulary * static_cast<int64_t>(sizeof(uint32_t)));
  if (!grown.ok()) return false;
  if (vocabulary == vocabulary_) {
    CheckOk(cudaMemcpyAsync(grown->get(), counts_.get(),
                            static_cast<size_t>(penalty_slots_ * vocabulary) * sizeof(uint32_t),
                            cudaMemcpyDeviceToDevice, stream_),
            "moving counts");
  }
  // Freeing the old memory waits for its readers.
  counts_ = *std::move(grown);
  penalty_slots_ = slots;
  vocabulary_ = vocabulary;
  return true;
}

void DrawQueue::Prepare(const StepDraws& draws) {
  const auto bytes = DrawTable::BytesOf(draws);
  const auto count = std::ssize(draws.rows);
  // Freeing the old memory waits for its readers.
  absl::Status grown;
  if (bytes > asked_bytes_) grown.Update(ReserveTable(2 * bytes));
  if (count > capacity_) {
    grown.Update(ReserveTokens(2 * count));
    moved_();
  }
  grown.Update(Reserve(transfers_[launched_ % transfers_.size()], bytes, count));
  BATON_CHECK(grown.ok()) << " draws: " << grown.ToString();
}

void DrawQueue::Launch(Matrix logits, const StepDraws& draws) {
  Prepare(draws);  // which has nothing to do in a step: it has been called
  BATON_CHECK(logits.dtype == tensor::DType::kF32 && launched_ - finished_ < transfers_.size());
  for (const RowDraw& row : draws.rows) {
    BATON_CHECK(row.slot < penalty_slots_ && (row.slot < 0 || logits.cols == vocabulary_));
  }
  const DrawTable table(draws);
  const auto count = std::ssize(draws.rows);
  Transfer& transfer = transfers_[launched_++ % transfers_.size()];
  transfer.count = count;
  std::memcpy(transfer.asked.get(), table.bytes().data(), table.bytes().size());
  CheckOk(cudaMemcpyAsync(asked_.get(), transfer.asked.get(), table.bytes().size(), cudaMemcpyHostToDevice,
                          stream_),
          "sending draws");
  const DrawView view = table.View(asked_.get());
  const auto vocabulary = static_cast<int>(logits.cols);
  auto* const counts = reinterpret_cast<uint32_t*>(counts_.get());
  auto* const tokens = reinterpret_cast<int32_t*>(tokens_.get());
  CountSeen(view, vocabulary, counts, stream_);
  cuda::Draw(static_cast<float*>(logits.data), logits.stride, vocabulary, view, counts, tokens, states_.get(),
             stream_);
  CheckOk(cudaMemcpyAsync(transfer.given.get(), tokens_.get(), static_cast<size_t>(count) * sizeof(int32_t),
                          cudaMemcpyDeviceToHost, stream_),
          "copying tokens to the host");
  CheckOk(cudaEventRecord(transfer.arrived.get(), stream_), "copying tokens to the host");
}

void DrawQueue::Await(std::span<TokenId> tokens) {
  BATON_CHECK(finished_ < launched_);
  const Transfer& transfer = transfers_[finished_++ % transfers_.size()];
  BATON_CHECK_EQ(std::ssize(tokens), transfer.count);
  CheckOk(cudaEventSynchronize(transfer.arrived.get()), "waiting for tokens");
  const auto* ids = reinterpret_cast<const int32_t*>(transfer.given.get());
  std::transform(ids, ids + transfer.count, tokens.begin(), [](int32_t id) { return TokenId(id); });
}

}  // namespace baton::kernels::cuda
