// PrefillClient: how a decode worker calls prefill workers. The seam lets the hand-off be tested without a
// network: the scripted client of the tests and GrpcPrefillClient both pass events on the engine thread, one
// at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "baton/fleet/v1/prefill.grpc.pb.h"
#include "common/rpc/peer_calls.h"
#include "common/rpc/security.h"
#include "engine/loop.h"

namespace baton::decode_service {

using PrefillCall = rpc::EventCall;

class PrefillClient {
 public:
  using Callbacks = rpc::EventCallbacks<fleet::v1::PrefillEvent>;
  virtual ~PrefillClient() = default;
  // Starts a call, which says that it belongs to `trace`. Callbacks come on the engine thread, after Call has
  // returned.
  virtual std::unique_ptr<PrefillCall> Call(const std::string& address, fleet::v1::PrefillRequest request,
                                            absl::Time deadline, const telemetry::TraceContext& trace,
                                            Callbacks callbacks) = 0;
};

// Over gRPC (rpc/peer_calls.h); events are posted to `loop`.
class GrpcPrefillClient final : public PrefillClient {
 public:
  // Both outlive it.
  GrpcPrefillClient(engine::Loop& loop, const rpc::PeerOptions& peers)
      : calls_(&fleet::v1::Prefill::StubInterface::async_interface::Prefill, peers,
               [&loop](engine::Loop::Task task) { loop.PostAlways(std::move(task)); }) {}
  std::unique_ptr<PrefillCall> Call(const std::string& address, fleet::v1::PrefillRequest request,
                                    absl::Time deadline, const telemetry::TraceContext& trace,
                                    Callbacks callbacks) override {
    return calls_.Call(address, std::move(request), deadline, std::move(callbacks), trace);
  }

 private:
  rpc::PeerCalls<fleet::v1::Prefill, fleet::v1::PrefillRequest, fleet::v1::PrefillEvent> calls_;
};

}  // namespace baton::decode_service
