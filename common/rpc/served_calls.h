// ServedCalls: how a worker serves server-streaming calls. A gRPC thread checks the caller and the request,
// posts the work to the thread that does it, and returns. That thread answers through an EventSink, hears of
// a caller that went away, and is woken when the caller has taken what was sent. gRPC callback threads, and
// the posted tasks on their own thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/rpc/event_sink.h"
#include "common/rpc/security.h"
#include "common/rpc/server_stream.h"

namespace baton::rpc {

// Loop: the mailbox of the thread that does the work. TryPost(task) is false if it is full; PostAlways(task)
// is for what belongs to admitted work.
template <typename Event, typename Loop>
class ServedCalls {
 public:
  // max_outbox_bytes: what may wait for one caller before it counts as congested. `peers` and `loop` outlive
  // it.
  ServedCalls(const PeerCheck& peers, Loop& loop, size_t max_outbox_bytes)
      : peers_(peers), loop_(loop), max_outbox_bytes_(max_outbox_bytes) {}

  // Serves one call; the service method returns the result. On this thread: parse(sink) checks the request
  // and makes the work, which keeps the sink; full() says what the caller hears if the mailbox is full. On
  // the thread that does the work: submit(work) starts it or refuses it, and cancel() ends it if the caller
  // goes away. `parse` and `full` run before Serve returns.
  template <typename Work>
  grpc::ServerWriteReactor<Event>* Serve(grpc::CallbackServerContext& context,
                                         absl::FunctionRef<absl::StatusOr<Work>(EventSink<Event>)> parse,
                                         absl::AnyInvocable<absl::Status(Work)> submit,
                                         std::function<void()> cancel,
                                         absl::FunctionRef<absl::Status()> full) const {
    auto stream = ServerStream<Event>::Create();
    auto* reactor = stream->reactor();
    if (absl::Status stranger = peers_(context); !stranger.ok()) {
      stream->Finish(stranger);
      return reactor;
    }
    absl::StatusOr<Work> work =
        parse({.send = [stream](Event event) { stream->Send(std::move(event)); },
               .finish = [stream](const absl::Status& status) { stream->Finish(status); },
               .congested = [stream, most = max_outbox_bytes_] { return stream->outbox_bytes() > most; }});
    if (!work.ok()) {
      stream->Finish(work.status());
      return reactor;
    }
    const bool posted = loop_.TryPost([&loop = loop_, stream, work = *std::move(work),
                                       submit = std::move(submit), cancel = std::move(cancel)]() mutable {
      if (stream->cancelled()) return;
      if (absl::Status admitted = submit(std::move(work)); !admitted.ok()) {
        stream->Finish(admitted);
        return;
      }
      stream->Listen({.cancelled = [&loop, cancel] { loop.PostAlways(cancel); },
                      .drained = [&loop] { loop.PostAlways([] {}); }});
    });
    if (!posted) stream->Finish(full());
    return reactor;
  }

 private:
  const PeerCheck& peers_;
  Loop& loop_;
  const size_t max_outbox_bytes_;
};

}  // namespace baton::rpc
