// FetchClient: how a worker asks a peer for blocks. A seam: the scripted client of the tests and
// GrpcFetchClient both pass events on the engine thread, one at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/blocks.grpc.pb.h"
#include "common/rpc/peer_calls.h"
#include "common/rpc/security.h"
#include "common/telemetry/trace_context.h"
#include "engine/loop.h"

namespace baton::fetch {

class FetchClient {
 public:
  using Callbacks = rpc::EventCallbacks<fleet::v1::FetchEvent>;
  virtual ~FetchClient() = default;
  // Starts a call, which says that it belongs to `trace`. Callbacks come on the engine thread, after Call has
  // returned. After `patience` the call ends with DEADLINE_EXCEEDED.
  virtual std::unique_ptr<rpc::EventCall> Call(const std::string& address, fleet::v1::FetchRequest request,
                                               absl::Duration patience, const telemetry::TraceContext& trace,
                                               Callbacks callbacks) = 0;
};

// Over gRPC (rpc/peer_calls.h); events are posted to `loop`.
class GrpcFetchClient final : public FetchClient {
 public:
  // Both outlive it.
  GrpcFetchClient(engine::Loop& loop, const rpc::PeerOptions& peers)
      : calls_(&fleet::v1::Blocks::StubInterface::async_interface::Fetch, peers,
               [&loop](engine::Loop::Task task) { loop.PostAlways(std::move(task)); }) {}
  std::unique_ptr<rpc::EventCall> Call(const std::string& address, fleet::v1::FetchRequest request,
                                       absl::Duration patience, const telemetry::TraceContext& trace,
                                       Callbacks callbacks) override {
    return calls_.Call(address, std::move(request), absl::Now() + patience, std::move(callbacks), trace);
  }

 private:
  rpc::PeerCalls<fleet::v1::Blocks, fleet::v1::FetchRequest, fleet::v1::FetchEvent> calls_;
};

}  // namespace baton::fetch
