#include "transfer/fetch/fetch.h"

#include <fmt/format.h>

#include <utility>

#include "protocol/fleet/lease_wire.h"

namespace baton::fetch {

Fetch::Fetch(std::string worker, protocol::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
             transfer::LinkReceiver& link, absl::Time started, Callbacks callbacks,
             std::function<void(const Fetch&, const absl::Status&)> decided)
    : worker_(std::move(worker)),
      started_(started),
      callbacks_(std::move(callbacks)),
      receiver_(std::move(ticket), blocks, store, link,
                {.written = [this] { OnWritten(); },
                 .complete = [this] { return Complete(); },
                 .decided = [this, decided = std::move(decided)](
                                const absl::Status& status) { decided(*this, status); },
                 .ended = callbacks_.ended}) {}

void Fetch::Start(FetchClient& client, const std::string& address, fleet::v1::FetchRequest request,
                  absl::Duration patience, const telemetry::TraceContext& trace) {
  *request.mutable_ticket() = receiver_.intake().ticket().ToProto();
  receiver_.Start<fleet::v1::FetchEvent>([this](const auto& event) { return OnEvent(event); },
                                         [&](FetchClient::Callbacks callbacks) {
                                           return client.Call(address, std::move(request), patience, trace,
                                                              std::move(callbacks));
                                         },
                                         address);
}

absl::Status Fetch::OnEvent(const std::shared_ptr<const fleet::v1::FetchEvent>& event) {
  switch (event->event_case()) {
    case fleet::v1::FetchEvent::kFound:
      return OnFound(event->found());
    case fleet::v1::FetchEvent::kChunk:
      if (!found_.has_value()) {
        return absl::InternalError(fmt::format("worker {} sends blocks that it has not announced", worker_));
      }
      receiver_.Accept(event->chunk(), event);
      break;
    case fleet::v1::FetchEvent::EVENT_NOT_SET:
      return absl::InternalError(fmt::format("worker {} sent an empty event", worker_));
  }
  return absl::OkStatus();
}

absl::Status Fetch::OnFound(const fleet::v1::FetchFound& found) {
  const int64_t blocks = found.blocks();
  if (found_.has_value() || blocks > asked()) {
    return absl::InternalError(fmt::format("worker {} says that it found {} blocks of {}{}", worker_, blocks,
                                           asked(), found_.has_value() ? " after it had said so" : ""));
  }
  const auto leases = protocol::HeldLeasesFromProto(found.leases(), blocks);
  if (!leases.ok()) {
    return absl::InternalError(fmt::format("worker {} {}", worker_, std::string(leases.status().message())));
  }
  found_ = blocks;
  if (callbacks_.leased && !leases->empty()) callbacks_.leased(*leases);
  return absl::OkStatus();
}

void Fetch::OnWritten() {
  if (committed() == told_) return;
  told_ = committed();
  callbacks_.committed(told_);
}

absl::Status Fetch::Complete() const {
  if (found_.has_value() && committed() == *found_) return absl::OkStatus();
  return absl::InternalError(fmt::format("worker {} ended its stream after {} of {} blocks", worker_,
                                         committed(), found_.value_or(asked())));
}

}  // namespace baton::fetch
