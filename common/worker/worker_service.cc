#include "common/worker/worker_service.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <cmath>

namespace baton::worker {
namespace {

// Answers when the worker is idle or the grace time is over, whichever comes first.
class DrainCall final : public grpc::ServerUnaryReactor {
 public:
  static DrainCall* Start(WatchHub& hub, double grace, v1::DrainResponse* response) {
    auto call = std::shared_ptr<DrainCall>(new DrainCall(response));
    call->self_ = call;
    hub.SetDraining(true);
    // std::function wants a copyable target: the shared_ptr is.
    call->alarm_.Set(std::chrono::system_clock::now() + std::chrono::milliseconds(std::llround(grace * 1000)),
                     [call](bool expired) { call->End(expired ? 1 : 0); });
    hub.WhenIdle([weak = std::weak_ptr<DrainCall>(call)] {
      if (auto idle = weak.lock()) idle->End(0);
    });
    return call.get();
  }

 private:
  explicit DrainCall(v1::DrainResponse* response) : response_(response) {}

  void End(uint32_t abandoned) {
    if (ended_.exchange(true)) return;
    response_->set_abandoned(abandoned);
    Finish(grpc::Status::OK);
  }
  void OnDone() override {
    alarm_.Cancel();
    const std::shared_ptr<DrainCall> self = std::move(self_);
  }

  v1::DrainResponse* response_;
  grpc::Alarm alarm_;
  std::atomic<bool> ended_ = false;
  std::shared_ptr<DrainCall> self_;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchEvent>* WorkerService::Watch(grpc::CallbackServerContext* context,
                                                               const v1::WatchRequest* request) {
  auto stream = WatchHub::Stream::Create();
  auto* reactor = stream->reactor();
  hub_.Attach(std::move(stream), request->blocks());
  loop_.PostAlways([] {});
  return reactor;
}

grpc::ServerUnaryReactor* WorkerService::Drain(grpc::CallbackServerContext* context,
                                               const v1::DrainRequest* request, v1::DrainResponse* response) {
  if (!(request->grace() >= 0) || request->grace() > 86400) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish({grpc::StatusCode::INVALID_ARGUMENT, "grace must be between 0 and 86400 seconds"});
    return reactor;
  }
  return DrainCall::Start(hub_, request->grace(), response);
}

}  // namespace baton::worker
