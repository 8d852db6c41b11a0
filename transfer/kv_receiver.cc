#include "transfer/kv_receiver.h"

namespace baton::transfer {

KvReceiver::KvReceiver(protocol::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
                       LinkReceiver& link, Callbacks callbacks)
    : intake_(std::move(ticket), blocks, store, link), link_(link), callbacks_(std::move(callbacks)) {}

void KvReceiver::Accept(const fleet::v1::KvChunk& chunk, std::shared_ptr<const void> event) {
  intake_.Accept(chunk, [this, event = std::move(event)](const absl::Status& status) { OnWritten(status); });
}

void KvReceiver::OnWritten(const absl::Status& status) {
  if (untold_.has_value()) {
    TellEnd();
    return;
  }
  if (ended_) return;
  refused_write_ |= absl::IsFailedPrecondition(status);
  if (!status.ok()) {
    End(status);
    return;
  }
  if (callbacks_.written) callbacks_.written();
  if (stream_ended_) OnStreamEnded(absl::OkStatus());
}

void KvReceiver::OnStreamEnded(const absl::Status& status) {
  if (ended_) return;
  if (!status.ok()) {
    // Also what a worker says that leaves, or whose link has failed.
    if (absl::IsUnavailable(status)) link_.Suspect(from_);
    End(status);
    return;
  }
  stream_ended_ = true;
  if (absl::Status complete = callbacks_.complete(); complete.ok() || !intake_.writing()) End(complete);
}

void KvReceiver::End(absl::Status status) {
  if (ended_) return;
  ended_ = true;
  call_.reset();
  intake_.Release();
  if (callbacks_.decided) callbacks_.decided(status);
  untold_ = std::move(status);
  TellEnd();
}

void KvReceiver::Release() {
  const bool was_running = !ended_;
  ended_ = true;
  untold_.reset();
  call_.reset();
  intake_.Release();
  if (was_running && callbacks_.decided) callbacks_.decided(absl::CancelledError("given up"));
}

// The owner may give the blocks to others when it hears of the end, or have them written by a next attempt:
// it hears only after the last write.
void KvReceiver::TellEnd() {
  if (intake_.writing()) return;
  const absl::Status status = *std::move(untold_);
  untold_.reset();
  callbacks_.ended(status);
}

}  // namespace baton::transfer
