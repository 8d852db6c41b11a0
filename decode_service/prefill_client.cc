#include "decode_service/prefill_client.h"

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"

namespace baton::decode_service {
namespace {

using Stream = rpc::ClientStream<v1::PrefillRequest, v1::PrefillEvent>;

class GrpcPrefillCall final : public PrefillCall {
 public:
  // Engine thread only; empty once the owner has let go.
  using Owner = std::shared_ptr<PrefillClient::Callbacks>;

  GrpcPrefillCall(std::shared_ptr<Stream> stream, Owner owner)
      : stream_(std::move(stream)), owner_(std::move(owner)) {}
  ~GrpcPrefillCall() override {
    owner_->event = nullptr;
    owner_->done = nullptr;
    stream_->Cancel();
  }
  void Next() override { stream_->Next(); }

 private:
  std::shared_ptr<Stream> stream_;
  Owner owner_;
};

}  // namespace

GrpcPrefillClient::~GrpcPrefillClient() {
  absl::MutexLock lock(&outstanding_->mutex);
  outstanding_->mutex.Await(absl::Condition(
      +[](int* calls) { return *calls == 0; }, &outstanding_->calls));
}

std::unique_ptr<PrefillCall> GrpcPrefillClient::Call(const std::string& address, v1::PrefillRequest request,
                                                     absl::Time deadline, Callbacks callbacks) {
  if (stubs_.size() >= kMaxPeers) stubs_.clear();
  auto& stub = stubs_[address];
  if (stub == nullptr) stub = v1::Prefill::NewStub(rpc::MakeChannel(address, {}, &security_));
  auto context = std::make_unique<grpc::ClientContext>();
  if (deadline != absl::InfiniteFuture()) context->set_deadline(absl::ToChronoTime(deadline));
  auto owner = std::make_shared<Callbacks>(std::move(callbacks));
  Stream::Callbacks forward;
  forward.event = [&loop = loop_, owner](v1::PrefillEvent event) {
    loop.PostAlways([owner, event = std::move(event)]() mutable {
      // A copy runs: the owner may destroy the call, and with it these callbacks, from inside.
      if (const auto handle = owner->event) handle(std::move(event));
    });
  };
  {
    absl::MutexLock lock(&outstanding_->mutex);
    ++outstanding_->calls;
  }
  // The stub stays alive as long as the call.
  forward.done = [&loop = loop_, outstanding = outstanding_, owner, stub](absl::Status status) {
    loop.PostAlways([owner, status = std::move(status)] {
      if (const auto handle = std::exchange(owner->done, nullptr)) handle(status);
    });
    absl::MutexLock lock(&outstanding->mutex);
    --outstanding->calls;
  };
  auto stream = Stream::Call(std::move(request), std::move(context), std::move(forward),
                             [&](grpc::ClientContext* call, const v1::PrefillRequest* message,
                                 grpc::ClientReadReactor<v1::PrefillEvent>* reactor) {
                               stub->async()->Prefill(call, message, reactor);
                             });
  return std::make_unique<GrpcPrefillCall>(std::move(stream), std::move(owner));
}

}  // namespace baton::decode_service
