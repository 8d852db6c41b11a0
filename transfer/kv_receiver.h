// KvReceiver: the receiving end of one stream that carries KV: a hand-off from a prefill worker, a fetch from
// a peer, or the test of a link. It owns the call and the intake (intake.h), and decides when the stream is
// over: when it has ended and no write is in progress, or at the first error. What else the stream carries is
// dealt with by the receiver's owner. No gRPC of its own, no clock.
//
// Release, at any time, cancels the call and all callbacks. A write that has begun may still end after it:
// until writing() is false, the object and the blocks stay. Engine thread, one event at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/rpc/posted_calls.h"
#include "transfer/intake.h"

namespace baton::transfer {

class KvReceiver {
 public:
  struct Callbacks {
    // A chunk is in its blocks. May be empty.
    std::function<void()> written;
    // The stream has ended without an error: OK if everything has come, otherwise the error that says what is
    // missing. Asked again after each write that was in progress.
    std::function<absl::Status()> complete;
    // Once, when the outcome is known: before the last write may be over, and CANCELLED on Release. May be
    // empty.
    std::function<void(const absl::Status&)> decided;
    // Once, last, unless released before, and with no write in progress: the blocks may go to others now.
    std::function<void(absl::Status)> ended;
  };

  // As Intake: the ticket covers the tail of `blocks` from ticket.first_block on.
  KvReceiver(protocol::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store, LinkReceiver& link,
             Callbacks callbacks);
  ~KvReceiver() { Release(); }

  // Starts the call that `call` makes to the worker at `from`. on_event sees each event while the stream
  // runs; its error ends the stream. The next event comes when it has returned.
  template <typename Event>
  void Start(std::function<absl::Status(const std::shared_ptr<const Event>&)> on_event,
             absl::FunctionRef<std::unique_ptr<rpc::EventCall>(rpc::EventCallbacks<Event>)> call,
             std::string from) {
    from_ = from;
    intake_.Request(std::move(from));
    call_ = call({.event =
                      [this, on_event = std::move(on_event)](Event event) {
                        if (ended_) return;
                        absl::Status taken = on_event(std::make_shared<const Event>(std::move(event)));
                        if (!taken.ok()) End(std::move(taken));
                        if (!ended_) call_->Next();
                      },
                  .done = [this](const absl::Status& status) { OnStreamEnded(status); }});
  }
  // Takes a chunk of the stream; `event` owns it and lives until it is written. An error ends the stream.
  void Accept(const fleet::v1::KvChunk& chunk, std::shared_ptr<const void> event);

  // Ends the stream: no further write begins.
  void End(absl::Status status);
  // May be called from a callback.
  void Release();

  bool writing() const { return intake_.writing(); }
  // Neither ended nor released.
  bool running() const { return !ended_; }
  // A chunk came that the ticket does not cover.
  bool refused_write() const { return refused_write_; }
  const Intake& intake() const { return intake_; }

 private:
  void OnWritten(const absl::Status& status);
  void OnStreamEnded(const absl::Status& status);
  void TellEnd();

  Intake intake_;
  LinkReceiver& link_;
  std::string from_;
  Callbacks callbacks_;
  std::unique_ptr<rpc::EventCall> call_;
  bool refused_write_ = false;
  bool stream_ended_ = false;           // without an error
  bool ended_ = false;                  // events that still come are ignored
  std::optional<absl::Status> untold_;  // the end, as long as a write is in progress
};

}  // namespace baton::transfer
