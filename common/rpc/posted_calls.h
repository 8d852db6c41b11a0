// PostedCalls: server-streaming calls to peers whose events one thread of the caller handles: events that
// arrive on gRPC's threads are posted there, one at a time. The owner's end of a call is an
// EventCall: destroying it cancels the call, and no callback comes after that. Calls and EventCalls: the
// owner's thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/trace_metadata.h"

namespace baton::rpc {

// One call, from start to end. Destroying it cancels the call if it still runs; no callback comes after that.
class EventCall {
 public:
  virtual ~EventCall() = default;
  // The event has been handled: the next one may come.
  virtual void Next() = 0;
};

template <typename Event>
struct EventCallbacks {
  std::function<void(Event)> event;
  // Exactly once, last. OK: the peer has sent everything.
  std::function<void(absl::Status)> done;
};

template <typename Request, typename Event>
class PostedCalls {
 public:
  // Runs a task on the owner's thread, or drops it if that has ended. Any thread.
  using Post = std::function<void(absl::AnyInvocable<void()>)>;

  explicit PostedCalls(Post post) : post_(std::make_shared<const Post>(std::move(post))) {}
  // Waits until calls whose EventCall was destroyed have ended inside gRPC.
  ~PostedCalls() {
    absl::MutexLock lock(&outstanding_->mutex);
    outstanding_->mutex.Await(absl::Condition(
        +[](int* calls) { return *calls == 0; }, &outstanding_->calls));
  }

  // start(context, request, reactor): the stub's async()->Method(...); `stub` lives as long as the call.
  template <typename Start>
  std::unique_ptr<EventCall> Call(Request request, absl::Time deadline, const telemetry::TraceContext& trace,
                                  EventCallbacks<Event> callbacks, std::shared_ptr<void> stub, Start start) {
    auto context = std::make_unique<grpc::ClientContext>();
    AddTrace(trace, context.get());
    if (deadline != absl::InfiniteFuture()) context->set_deadline(absl::ToChronoTime(deadline));
    auto owner = std::make_shared<EventCallbacks<Event>>(std::move(callbacks));
    typename Stream::Callbacks forward;
    forward.event = [post = post_, owner](Event event) {
      (*post)([owner, event = std::move(event)]() mutable {
        // A copy runs: the owner may destroy the call, and with it these callbacks, from inside.
        if (const auto handle = owner->event) handle(std::move(event));
      });
    };
    {
      absl::MutexLock lock(&outstanding_->mutex);
      ++outstanding_->calls;
    }
    forward.done = [post = post_, outstanding = outstanding_, owner, stub](absl::Status status) mutable {
      stub.reset();  // before anybody hears of the end: see ClientStream
      (*post)([owner, status = std::move(status)] {
        if (const auto handle = std::exchange(owner->done, nullptr)) handle(status);
      });
      absl::MutexLock lock(&outstanding->mutex);
      --outstanding->calls;
    };
    return std::make_unique<Posted>(
        Stream::Call(std::move(request), std::move(context), std::move(forward), std::move(start)),
        std::move(owner));
  }

 private:
  using Stream = ClientStream<Request, Event>;

  class Posted final : public EventCall {
   public:
    // The callbacks are empty once the owner has let go.
    Posted(std::shared_ptr<Stream> stream, std::shared_ptr<EventCallbacks<Event>> owner)
        : stream_(std::move(stream)), owner_(std::move(owner)) {}
    ~Posted() override {
      owner_->event = nullptr;
      owner_->done = nullptr;
      stream_->Cancel();
    }
    void Next() override { stream_->Next(); }

   private:
    std::shared_ptr<Stream> stream_;
    std::shared_ptr<EventCallbacks<Event>> owner_;
  };

  struct Outstanding {
    absl::Mutex mutex;
    int calls ABSL_GUARDED_BY(mutex) = 0;
  };

  const std::shared_ptr<const Post> post_;
  const std::shared_ptr<Outstanding> outstanding_ = std::make_shared<Outstanding>();
};

}  // namespace baton::rpc
