// PeerCalls: server-streaming calls of one method to peers by their addresses, with one channel per address,
// kept for the next call. Events are dealt with on the owner's thread (posted_calls.h), as is everything
// here. The destructor waits for calls that were let go to come to their end inside gRPC.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/posted_calls.h"

namespace baton::rpc {

template <typename Service, typename Request, typename Event>
class PeerCalls {
 public:
  // A method of the service's asynchronous stub.
  using Method = void (Service::StubInterface::async_interface::*)(grpc::ClientContext*, const Request*,
                                                                   grpc::ClientReadReactor<Event>*);

  // `post` runs a task on the owner's thread.
  PeerCalls(Method method, const PeerOptions& peers, typename PostedCalls<Request, Event>::Post post)
      : method_(method), peers_(peers), calls_(std::move(post)) {}

  // Starts a call, which says that it belongs to `trace`. Callbacks come on the owner's thread, after Call
  // has returned.
  std::unique_ptr<EventCall> Call(const std::string& address, Request request, absl::Time deadline,
                                  EventCallbacks<Event> callbacks,
                                  const telemetry::TraceContext& trace = {}) {
    if (stubs_.size() >= kMaxPeers) stubs_.clear();
    auto& stub = stubs_[address];
    if (stub == nullptr) stub = Service::NewStub(MakeChannel(address, peers_.keepalive, &peers_.security));
    return calls_.Call(
        std::move(request), deadline, trace, std::move(callbacks), stub,
        [&](grpc::ClientContext* context, const Request* message, grpc::ClientReadReactor<Event>* reactor) {
          (stub->async()->*method_)(context, message, reactor);
        });
  }

 private:
  // Peers come and go: with more than this many addresses, all channels are made again.
  static constexpr size_t kMaxPeers = 1024;

  const Method method_;
  const PeerOptions peers_;
  absl::flat_hash_map<std::string, std::shared_ptr<typename Service::Stub>> stubs_;
  PostedCalls<Request, Event> calls_;
};

}  // namespace baton::rpc
