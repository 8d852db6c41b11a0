// ClientStream: the client's end of a server-streaming call that is read one event at a time: it reads the
// next event only when the owner calls Next(), so a slow owner slows the sender down through HTTP/2's own
// flow control. Callbacks run on gRPC's threads; `done` is the last one and comes exactly once.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/status.h"

namespace baton::rpc {

template <typename Request, typename Event>
class ClientStream final : public grpc::ClientReadReactor<Event> {
 public:
  struct Callbacks {
    std::function<void(Event)> event;
    std::function<void(absl::Status)> done;
    // Before `done`: the trailing metadata is in the context. Empty: nobody wants it.
    std::function<void(const grpc::ClientContext&)> ending = {};
  };

  // start(context, request, reactor): the stub's async()->Method(...). The first event is asked for at once.
  template <typename Start>
  static std::shared_ptr<ClientStream> Call(Request request, std::unique_ptr<grpc::ClientContext> context,
                                            Callbacks callbacks, Start start) {
    auto stream = std::shared_ptr<ClientStream>(
        new ClientStream(std::move(request), std::move(context), std::move(callbacks)));
    stream->self_ = stream;
    start(stream->context_.get(), &stream->request_, stream.get());
    // Held until done, so that Next() may come at any time, from any thread.
    stream->AddHold();
    stream->StartRead(&stream->event_);
    stream->StartCall();
    return stream;
  }

  // Asks for the next event; call once for each event, when it has been dealt with.
  void Next() {
    absl::MutexLock lock(&mutex_);
    Read();
  }

  // Any thread, any number of times. No further events; `done` follows.
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
    cancelled_ = true;
    Read();  // the call ends only through a failing read
  }

 private:
  ClientStream(Request request, std::unique_ptr<grpc::ClientContext> context, Callbacks callbacks)
      : request_(std::move(request)), context_(std::move(context)), callbacks_(std::move(callbacks)) {}

  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_ || reading_) return;
    reading_ = true;
    this->StartRead(&event_);
  }

  void OnReadDone(bool ok) override {
    Event event;
    {
      absl::MutexLock lock(&mutex_);
      // Moved out before anybody may read again: Cancel() may do so as soon as reading_ is false, and so may
      // the owner, with Next(), before this returns.
      if (ok) event = std::move(event_);
      reading_ = false;
      if (!ok) {
        ended_ = true;
      } else if (cancelled_) {
        Read();
        return;
      }
    }
    if (ok) {
      callbacks_.event(std::move(event));
    } else {
      this->RemoveHold();
    }
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<ClientStream> self = std::move(self_);
    Callbacks callbacks = std::move(callbacks_);
    {
      // Holds the channel. `done` may release it, and the last channel of a process must not be destroyed
      // here, because its destructor waits for this thread.
      absl::MutexLock lock(&mutex_);
      if (callbacks.ending) callbacks.ending(*context_);
      context_.reset();
    }
    callbacks.done(FromGrpc(status));
  }

  Request request_;
  std::unique_ptr<grpc::ClientContext> context_;  // null when it is over
  Callbacks callbacks_;
  Event event_;
  std::shared_ptr<ClientStream> self_;
  absl::Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::rpc
