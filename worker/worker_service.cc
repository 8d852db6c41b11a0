#include "worker/worker_service.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <cmath>

namespace baton::worker {
namespace {

// Answers when the worker is idle or the grace time is over, whichever comes first.
class DrainCall final : public grpc::ServerUnaryReactor {
 public:
  static DrainCall* Start(WatchHub& hub, engine::Loop& loop, double grace,
                          fleet::v1::DrainResponse* response) {
    auto call = std::shared_ptr<DrainCall>(new DrainCall(response));
    call->self_ = call;
    hub.SetDraining(true);
    // self_ keeps the call until gRPC is done with it. The alarm, its member, must not: it never lets go of
    // its callback.
    const std::weak_ptr<DrainCall> weak = call;
    call->alarm_.Set(std::chrono::system_clock::now() + std::chrono::milliseconds(std::llround(grace * 1000)),
                     [weak](bool expired) {
                       if (const auto alive = weak.lock(); alive != nullptr && expired) alive->End(1);
                     });
    hub.WhenIdle([weak] {
      if (const auto alive = weak.lock()) alive->End(0);
    });
    loop.PostAlways([] {});
    return call.get();
  }

 private:
  explicit DrainCall(fleet::v1::DrainResponse* response) : response_(response) {}

  void End(uint32_t abandoned) {
    if (ended_.exchange(true)) return;
    response_->set_abandoned(abandoned);
    Finish(grpc::Status::OK);
  }
  void OnDone() override {
    const std::shared_ptr<DrainCall> self = std::move(self_);
    alarm_.Cancel();
  }

  fleet::v1::DrainResponse* response_;
  grpc::Alarm alarm_;
  std::atomic<bool> ended_ = false;
  std::shared_ptr<DrainCall> self_;
};

}  // namespace

grpc::ServerWriteReactor<fleet::v1::WatchEvent>* WorkerService::Watch(
    grpc::CallbackServerContext* context, const fleet::v1::WatchRequest* request) {
  auto stream = WatchHub::Stream::Create();
  auto* reactor = stream->reactor();
  if (absl::Status stranger = peers_(*context); !stranger.ok()) {
    stream->Finish(std::move(stranger));
    return reactor;
  }
  if (request->has_targets()) {
    const forecast::LatencyTargets targets = {.ttft = request->targets().ttft_seconds(),
                                              .tpot = request->targets().tpot_seconds(),
                                              .tail_share = request->targets().tail_share()};
    if (targets.Sound())
      loop_.PostAlways([this, targets, router = request->router_id()] { targets_(targets, router); });
  }
  hub_.Attach(std::move(stream), request->blocks(), request->template_digest());
  return reactor;
}

grpc::ServerUnaryReactor* WorkerService::Drain(grpc::CallbackServerContext* context,
                                               const fleet::v1::DrainRequest* request,
                                               fleet::v1::DrainResponse* response) {
  if (const absl::Status stranger = peers_(*context); !stranger.ok()) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(rpc::ToGrpc(stranger));
    return reactor;
  }
  if (!(request->grace_seconds() >= 0) || request->grace_seconds() > 86400) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish({grpc::StatusCode::INVALID_ARGUMENT, "grace must be between 0 and 86400 seconds"});
    return reactor;
  }
  return DrainCall::Start(hub_, loop_, request->grace_seconds(), response);
}

}  // namespace baton::worker
