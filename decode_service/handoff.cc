#include "decode_service/handoff.h"

#include <cstring>
#include <utility>

#include "common/base/digest.h"
#include "fmt/format.h"

namespace baton::decode_service {

Handoff::Handoff(std::string worker, transfer::Ticket ticket, std::span<const BlockId> blocks,
                 kv::KvStore& store, transfer::LinkReceiver& link, int64_t vocabulary, Callbacks callbacks)
    : worker_(std::move(worker)),
      intake_(std::move(ticket), blocks, store, link),
      vocabulary_(vocabulary),
      callbacks_(std::move(callbacks)) {}

Handoff::~Handoff() { Release(); }

void Handoff::Release() {
  ended_ = true;
  untold_.reset();
  call_.reset();
  intake_.Release();
}

void Handoff::Start(PrefillClient& client, const std::string& address, v1::PrefillRequest request,
                    absl::Time deadline) {
  *request.mutable_ticket() = intake_.ticket().ToProto();
  intake_.Request();
  call_ = client.Call(address, std::move(request), deadline,
                      {.event =
                           [this](v1::PrefillEvent event) {
                             // Shared with the write that it may begin.
                             OnEvent(std::make_shared<const v1::PrefillEvent>(std::move(event)));
                           },
                       .done = [this](absl::Status status) { OnDone(status); }});
}

void Handoff::OnEvent(std::shared_ptr<const v1::PrefillEvent> event) {
  if (ended_) return;
  switch (event->event_case()) {
    case v1::PrefillEvent::kProgress:
      break;
    case v1::PrefillEvent::kChunk:
      intake_.Accept(event->chunk(), [this, event](const absl::Status& status) { OnWritten(status); });
      break;
    case v1::PrefillEvent::kDone:
      if (absl::Status status = TakeLogits(event->done()); !status.ok()) End(status);
      break;
    case v1::PrefillEvent::EVENT_NOT_SET:
      End(absl::InternalError(fmt::format("prefill worker {} sent an empty event", worker_)));
      break;
  }
  if (!ended_) call_->Next();
}

void Handoff::OnWritten(const absl::Status& status) {
  if (untold_.has_value()) {
    TellEnd();
    return;
  }
  if (ended_) return;
  refused_write_ |= absl::IsFailedPrecondition(status);
  if (!status.ok()) {
    End(status);
  } else if (stream_done_) {
    OnDone(absl::OkStatus());
  }
}

absl::Status Handoff::TakeLogits(const v1::PrefillDone& done) {
  if (logits_taken_) return absl::InternalError(fmt::format("prefill worker {} sent logits twice", worker_));
  if (done.logits().size() != vocabulary_ * sizeof(float)) {
    return absl::DataLossError(
        fmt::format("prefill worker {} sent {} bytes of logits, a vocabulary of {} takes {}", worker_,
                    done.logits().size(), vocabulary_, vocabulary_ * sizeof(float)));
  }
  if (Crc32c(done.logits()) != done.logits_crc32c()) {
    return absl::DataLossError(
        fmt::format("checksum of the logits from prefill worker {} is wrong", worker_));
  }
  logits_taken_ = true;
  std::vector<float> logits(vocabulary_);
  std::memcpy(logits.data(), done.logits().data(), done.logits().size());
  callbacks_.logits(logits, done);
  return absl::OkStatus();
}

void Handoff::OnDone(const absl::Status& status) {
  stream_done_ = true;
  if (!status.ok()) {
    End(status);
  } else if (logits_taken_ && intake_.state() == transfer::Intake::State::kCommitted) {
    End(absl::OkStatus());
  } else if (!intake_.writing()) {
    End(absl::InternalError(fmt::format("prefill worker {} ended its stream after {} of {} blocks{}", worker_,
                                        intake_.received_blocks(), intake_.ticket().blocks(),
                                        logits_taken_ ? "" : " and without logits")));
  }
}

void Handoff::End(absl::Status status) {
  if (ended_) return;
  ended_ = true;
  call_.reset();
  intake_.Release();
  untold_ = std::move(status);
  TellEnd();
}

// A next attempt writes the same blocks, so nobody hears of the end before the last write of this one is
// over.
void Handoff::TellEnd() {
  if (intake_.writing()) return;
  const absl::Status status = *std::move(untold_);
  untold_.reset();
  callbacks_.ended(status);
}

}  // namespace baton::decode_service
