// WorkerService: baton.fleet.v1.Worker, the same on prefill and decode workers: Watch and Drain. gRPC
// callback threads; nothing here waits.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/rpc/security.h"
#include "engine/loop.h"
#include "protocol/forecast/targets.h"
#include "worker/watch_hub.h"

namespace baton::worker {

class WorkerService final : public fleet::v1::Worker::CallbackService {
 public:
  // All outlive it. The loop is woken when somebody attaches, so that its next step publishes. `targets`
  // hears of those that a router tells, on the loop.
  using Targets = std::function<void(const forecast::LatencyTargets&, const std::string& router_id)>;
  WorkerService(WatchHub& hub, engine::Loop& loop, const rpc::PeerCheck& peers, Targets targets)
      : hub_(hub), loop_(loop), peers_(peers), targets_(std::move(targets)) {}

  grpc::ServerWriteReactor<fleet::v1::WatchEvent>* Watch(grpc::CallbackServerContext* context,
                                                         const fleet::v1::WatchRequest* request) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const fleet::v1::DrainRequest* request,
                                  fleet::v1::DrainResponse* response) override;

 private:
  WatchHub& hub_;
  engine::Loop& loop_;
  const rpc::PeerCheck& peers_;
  const Targets targets_;
};

}  // namespace baton::worker
