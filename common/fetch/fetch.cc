#include "common/fetch/fetch.h"

#include <utility>

#include "fmt/format.h"

namespace baton::fetch {

Fetch::Fetch(std::string worker, transfer::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
             transfer::LinkReceiver& link, absl::Time started, Callbacks callbacks,
             std::function<void(const Fetch&, const absl::Status&)> over)
    : worker_(std::move(worker)),
      started_(started),
      intake_(std::move(ticket), blocks, store, link),
      callbacks_(std::move(callbacks)),
      over_(std::move(over)) {}

Fetch::~Fetch() { Release(); }

void Fetch::Release() {
  const bool was_running = !ended_;
  ended_ = true;
  untold_.reset();
  call_.reset();
  intake_.Release();
  if (was_running) over_(*this, absl::CancelledError("given up"));
}

void Fetch::Start(FetchClient& client, const std::string& address, v1::FetchRequest request,
                  absl::Duration patience) {
  *request.mutable_ticket() = intake_.ticket().ToProto();
  intake_.Request();
  call_ = client.Call(address, std::move(request), patience,
                      {.event =
                           [this](v1::FetchEvent event) {
                             // Shared with the write that it may begin.
                             OnEvent(std::make_shared<const v1::FetchEvent>(std::move(event)));
                           },
                       .done = [this](absl::Status status) { OnDone(status); }});
}

void Fetch::OnEvent(std::shared_ptr<const v1::FetchEvent> event) {
  if (ended_) return;
  switch (event->event_case()) {
    case v1::FetchEvent::kFound:
      if (found_.has_value() || event->found().blocks() > asked()) {
        End(absl::InternalError(fmt::format("worker {} says that it found {} blocks of {}{}", worker_,
                                            event->found().blocks(), asked(),
                                            found_.has_value() ? " after it had said so" : "")));
      } else {
        found_ = event->found().blocks();
      }
      break;
    case v1::FetchEvent::kChunk:
      if (!found_.has_value()) {
        End(absl::InternalError(fmt::format("worker {} sends blocks that it has not announced", worker_)));
      } else {
        intake_.Accept(event->chunk(), [this, event](const absl::Status& status) { OnWritten(status); });
      }
      break;
    case v1::FetchEvent::EVENT_NOT_SET:
      End(absl::InternalError(fmt::format("worker {} sent an empty event", worker_)));
      break;
  }
  if (!ended_) call_->Next();
}

void Fetch::OnWritten(const absl::Status& status) {
  if (untold_.has_value()) {
    TellEnd();
    return;
  }
  if (ended_) return;
  if (!status.ok()) {
    End(status);
    return;
  }
  if (committed() > told_) {
    told_ = committed();
    callbacks_.committed(told_);
  }
  if (!ended_ && stream_done_) OnDone(absl::OkStatus());
}

void Fetch::OnDone(const absl::Status& status) {
  if (ended_) return;
  stream_done_ = true;
  if (!status.ok()) {
    End(status);
  } else if (found_.has_value() && committed() == *found_) {
    End(absl::OkStatus());
  } else if (!intake_.writing()) {
    End(absl::InternalError(fmt::format("worker {} ended its stream after {} of {} blocks", worker_,
                                        committed(), found_.value_or(asked()))));
  }
}

void Fetch::End(absl::Status status) {
  if (ended_) return;
  ended_ = true;
  call_.reset();
  intake_.Release();
  over_(*this, status);
  untold_ = std::move(status);
  TellEnd();
}

// The blocks may go to others then, so nobody hears of the end before the last write is over.
void Fetch::TellEnd() {
  if (intake_.writing()) return;
  const absl::Status status = *std::move(untold_);
  untold_.reset();
  callbacks_.ended(status);
}

}  // namespace baton::fetch
