#include "decode_service/handoff.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "common/base/digest.h"

namespace baton::decode_service {

Handoff::Handoff(std::string worker, protocol::Ticket ticket, std::span<const BlockId> blocks,
                 kv::KvStore& store, transfer::LinkReceiver& link, int64_t vocabulary, Callbacks callbacks)
    : worker_(std::move(worker)),
      vocabulary_(vocabulary),
      callbacks_(std::move(callbacks)),
      receiver_(std::move(ticket), blocks, store, link,
                {.complete = [this] { return Complete(); }, .ended = callbacks_.ended}) {}

void Handoff::Start(PrefillClient& client, const std::string& address, fleet::v1::PrefillRequest request,
                    absl::Time deadline, const telemetry::TraceContext& trace) {
  *request.mutable_ticket() = intake().ticket().ToProto();
  receiver_.Start<fleet::v1::PrefillEvent>([this](const auto& event) { return OnEvent(event); },
                                           [&](PrefillClient::Callbacks callbacks) {
                                             return client.Call(address, std::move(request), deadline, trace,
                                                                std::move(callbacks));
                                           },
                                           address);
}

absl::Status Handoff::OnEvent(const std::shared_ptr<const fleet::v1::PrefillEvent>& event) {
  switch (event->event_case()) {
    case fleet::v1::PrefillEvent::kProgress:
      if (callbacks_.progress != nullptr) callbacks_.progress(event->progress());
      break;
    case fleet::v1::PrefillEvent::kChunk:
      receiver_.Accept(event->chunk(), event);
      break;
    case fleet::v1::PrefillEvent::kDone:
      return TakeLogits(event->done());
    case fleet::v1::PrefillEvent::EVENT_NOT_SET:
      return absl::InternalError(fmt::format("prefill worker {} sent an empty event", worker_));
  }
  return absl::OkStatus();
}

absl::Status Handoff::TakeLogits(const fleet::v1::PrefillDone& done) {
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

absl::Status Handoff::Complete() const {
  if (logits_taken_ && intake().state() == transfer::Intake::State::kCommitted) return absl::OkStatus();
  return absl::InternalError(fmt::format("prefill worker {} ended its stream after {} of {} blocks{}",
                                         worker_, intake().received_blocks(), intake().ticket().blocks(),
                                         logits_taken_ ? "" : " and without logits"));
}

}  // namespace baton::decode_service
