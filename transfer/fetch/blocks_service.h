// BlocksService: baton.fleet.v1.Blocks over gRPC, the same on prefill and decode workers. A reaction checks
// who asks and what, posts it to the engine's loop and returns. A worker that drains still answers: what it
// holds may be wanted elsewhere before it leaves. gRPC callback threads.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/blocks.grpc.pb.h"
#include "common/rpc/served_calls.h"
#include "engine/engine.h"
#include "engine/loop.h"
#include "transfer/fetch/peer_server.h"

namespace baton::fetch {

class BlocksService final : public fleet::v1::Blocks::CallbackService {
 public:
  // All outlive it.
  BlocksService(engine::Engine& engine, engine::Loop& loop, PeerServer& server, const rpc::PeerCheck& peers,
                const Clock& clock, const telemetry::Tracer& tracer);

  grpc::ServerWriteReactor<fleet::v1::FetchEvent>* Fetch(grpc::CallbackServerContext* context,
                                                         const fleet::v1::FetchRequest* request) override;

 private:
  engine::Engine& engine_;
  PeerServer& server_;
  const Clock& clock_;
  const telemetry::Tracer& tracer_;
  const rpc::ServedCalls<fleet::v1::FetchEvent, engine::Loop> calls_;
  std::atomic<FetchId> next_id_ = 1;
};

// A peer's request, checked, without the functions. FAILED_PRECONDITION: the fingerprints differ;
// INVALID_ARGUMENT names the field.
absl::StatusOr<ServedFetch> ParseRequest(const fleet::v1::FetchRequest& request,
                                         const engine::Engine& engine);

}  // namespace baton::fetch
