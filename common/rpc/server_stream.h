// ServerStream: the server's end of a server-streaming call, with an outbox. Any thread may Send and Finish;
// gRPC's threads only move messages. The object keeps itself alive until gRPC is done with it; others hold
// shared_ptrs, whose calls do nothing once the call has ended. Exactly one Finish reaches gRPC, after
// everything sent before it.
//
// Back-pressure: outbox_bytes() is what the peer has not read yet; the producer checks it and pauses (it
// is never blocked), and the `drained` callback tells it when to continue.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/status.h"

namespace baton::rpc {

template <typename Event>
class ServerStream final : public grpc::ServerWriteReactor<Event> {
 public:
  struct Callbacks {
    // The peer went away, cancelled, or its deadline passed. At most once, from a gRPC thread.
    std::function<void()> cancelled;
    // The outbox became empty. From a gRPC thread.
    std::function<void()> drained;
  };

  // Return `->reactor()` of the result from the service method.
  static std::shared_ptr<ServerStream> Create() {
    auto stream = std::shared_ptr<ServerStream>(new ServerStream);
    absl::MutexLock lock(&stream->mutex_);
    stream->self_ = stream;
    return stream;
  }
  grpc::ServerWriteReactor<Event>* reactor() { return this; }

  // Sets the callbacks. If the call was cancelled already, `cancelled` runs at once, in this
  // thread.
  void Listen(Callbacks callbacks) {
    const auto shared = std::make_shared<Callbacks>(std::move(callbacks));
    bool tell;
    {
      absl::MutexLock lock(&mutex_);
      if (!done_) callbacks_ = shared;
      tell = cancelled_ && !cancel_told_;
      cancel_told_ |= tell;
    }
    if (tell && shared->cancelled) shared->cancelled();
  }

  // Queues an event. False if the call has ended: the event is dropped.
  bool Send(Event event) {
    absl::MutexLock lock(&mutex_);
    if (finished_ || cancelled_ || done_) return false;
    outbox_bytes_ += event.ByteSizeLong();
    outbox_.push_back(std::move(event));
    if (outbox_.size() == 1) this->StartWrite(&outbox_.front());
    return true;
  }

  // Ends the call after what was sent. Later calls do nothing.
  void Finish(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (finished_ || done_) return;
    finished_ = true;
    status_ = ToGrpc(status);
    if (!status.ok() && outbox_.size() > 1) outbox_.erase(outbox_.begin() + 1, outbox_.end());
    if (outbox_.empty()) grpc::ServerWriteReactor<Event>::Finish(status_);
  }

  // Bytes queued and not yet taken by the transport.
  size_t outbox_bytes() const {
    absl::MutexLock lock(&mutex_);
    return outbox_bytes_;
  }
  bool cancelled() const {
    absl::MutexLock lock(&mutex_);
    return cancelled_;
  }

 private:
  ServerStream() = default;

  void OnWriteDone(bool ok) override {
    std::shared_ptr<Callbacks> drained;
    {
      absl::MutexLock lock(&mutex_);
      outbox_bytes_ -= outbox_.front().ByteSizeLong();
      outbox_.pop_front();
      if (!ok) {  // the transport is gone; OnCancel tells the owner
        outbox_.clear();
        outbox_bytes_ = 0;
      }
      if (!outbox_.empty()) {
        this->StartWrite(&outbox_.front());
      } else if (finished_) {
        grpc::ServerWriteReactor<Event>::Finish(status_);
      } else {
        drained = callbacks_;
      }
    }
    if (drained != nullptr && drained->drained) drained->drained();
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
      if (!finished_) {
        finished_ = true;
        status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away");
        if (outbox_.size() > 1) outbox_.erase(outbox_.begin() + 1, outbox_.end());
        if (outbox_.empty()) grpc::ServerWriteReactor<Event>::Finish(status_);
      }
    }
    NotifyCancelled();
  }

  void OnDone() override {
    // The callbacks' objects, and possibly this one, are destroyed after the lock.
    std::shared_ptr<ServerStream> self;
    std::shared_ptr<Callbacks> callbacks;
    {
      absl::MutexLock lock(&mutex_);
      done_ = true;
      callbacks.swap(callbacks_);
      self.swap(self_);
    }
  }

  void NotifyCancelled() {
    std::shared_ptr<Callbacks> callbacks;
    {
      absl::MutexLock lock(&mutex_);
      if (cancel_told_ || callbacks_ == nullptr) return;
      cancel_told_ = true;
      callbacks = callbacks_;
    }
    if (callbacks->cancelled) callbacks->cancelled();
  }

  mutable absl::Mutex mutex_;
  std::shared_ptr<ServerStream> self_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Callbacks> callbacks_ ABSL_GUARDED_BY(mutex_);
  std::deque<Event> outbox_ ABSL_GUARDED_BY(mutex_);
  size_t outbox_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancel_told_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::rpc
