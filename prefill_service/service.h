// PrefillService: baton.fleet.v1.Prefill over gRPC. A reaction checks the request, posts it to the engine's
// loop and returns. gRPC callback threads.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/prefill.grpc.pb.h"
#include "common/rpc/security.h"
#include "common/rpc/served_calls.h"
#include "engine/loop.h"
#include "prefill_service/link_tests.h"
#include "prefill_service/scheduler.h"
#include "worker/watch_hub.h"

namespace baton::prefill_service {

class PrefillService final : public fleet::v1::Prefill::CallbackService {
 public:
  // All outlive it.
  PrefillService(engine::Engine& engine, transfer::LinkSender& link, engine::Loop& loop, Scheduler& scheduler,
                 LinkTests& link_tests, worker::WatchHub& hub, Probe& probe, const rpc::PeerCheck& peers,
                 const Clock& clock, const telemetry::Tracer& tracer);

  grpc::ServerWriteReactor<fleet::v1::PrefillEvent>* Prefill(
      grpc::CallbackServerContext* context, const fleet::v1::PrefillRequest* request) override;
  grpc::ServerWriteReactor<fleet::v1::KvChunk>* TestLink(grpc::CallbackServerContext* context,
                                                         const fleet::v1::TestLinkRequest* request) override;
  grpc::ServerWriteReactor<fleet::v1::MeetResponse>* Meet(grpc::CallbackServerContext* context,
                                                          const fleet::v1::MeetRequest* request) override;

 private:
  // Sets the caller's trace, and the prompt's spans if it is recorded.
  void Trace(const grpc::CallbackServerContext& context, const fleet::v1::PrefillRequest& request,
             Job& job) const;

  engine::Engine& engine_;
  transfer::LinkSender& link_;
  Scheduler& scheduler_;
  LinkTests& link_tests_;
  worker::WatchHub& hub_;
  Probe& probe_;
  const Clock& clock_;
  const telemetry::Tracer& tracer_;
  const rpc::ServedCalls<fleet::v1::PrefillEvent, engine::Loop> calls_;
  const rpc::ServedCalls<fleet::v1::KvChunk, engine::Loop> tests_;
  const rpc::ServedCalls<fleet::v1::MeetResponse, engine::Loop> meetings_;
  std::atomic<JobId> next_id_ = 1;
};

}  // namespace baton::prefill_service
