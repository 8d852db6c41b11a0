#include "common/fetch/fetch_client.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"

namespace baton::fetch {

std::unique_ptr<rpc::EventCall> GrpcFetchClient::Call(const std::string& address, v1::FetchRequest request,
                                                      absl::Duration patience, Callbacks callbacks) {
  if (stubs_.size() >= kMaxPeers) stubs_.clear();
  auto& stub = stubs_[address];
  if (stub == nullptr) stub = v1::Blocks::NewStub(rpc::MakeChannel(address, {}, &security_));
  return calls_.Call(std::move(request), absl::Now() + patience, std::move(callbacks), stub,
                     [&](grpc::ClientContext* context, const v1::FetchRequest* message,
                         grpc::ClientReadReactor<v1::FetchEvent>* reactor) {
                       stub->async()->Fetch(context, message, reactor);
                     });
}

}  // namespace baton::fetch
