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
  intake_.Release();
}

void Handoff::Start(PrefillClient& client, const std::string& address, v1::PrefillRequest request,
                    absl::Time deadline) {
  *request.mutable_ticket() = intake_.ticket().ToProto();
  intake_.Request();
  call_ = client.Call(address, std::move(request), deadline,
                      {.event = [this](v1::PrefillEvent event) { OnEvent(std::move(event)); },
                       .done = [this](absl::Status status) { OnDone(status); }});
}

void Handoff::OnEvent(v1::PrefillEvent event) {
  if (ended_) return;
  switch (event.event_case()) {
    case v1::PrefillEvent::kProgress:
      break;
    case v1::PrefillEvent::kChunk:
      intake_.Accept(event.chunk(), [this](absl::Status status) {
        refused_write_ |= absl::IsFailedPrecondition(status);
        if (!status.ok()) End(status);
      });
      break;
    case v1::PrefillEvent::kDone:
      if (absl::Status status = TakeLogits(event.done()); !status.ok()) End(status);
      break;
    case v1::PrefillEvent::EVENT_NOT_SET:
      End(absl::InternalError(fmt::format("prefill worker {} sent an empty event", worker_)));
      break;
  }
  if (!ended_) call_->Next();
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
  if (!status.ok()) {
    End(status);
  } else if (!logits_taken_ || intake_.state() != transfer::Intake::State::kCommitted) {
    End(absl::InternalError(fmt::format("prefill worker {} ended its stream after {} of {} blocks{}", worker_,
                                        intake_.received_blocks(), intake_.ticket().blocks(),
                                        logits_taken_ ? "" : " and without logits")));
  } else {
    End(absl::OkStatus());
  }
}

void Handoff::End(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  intake_.Release();
  callbacks_.ended(status);
}

}  // namespace baton::decode_service
