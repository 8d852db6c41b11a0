#include "decode_service/prefill_client.h"

#include <utility>

#include "common/rpc/channel.h"

namespace baton::decode_service {

std::unique_ptr<PrefillCall> GrpcPrefillClient::Call(const std::string& address, v1::PrefillRequest request,
                                                     absl::Time deadline, Callbacks callbacks) {
  if (stubs_.size() >= kMaxPeers) stubs_.clear();
  auto& stub = stubs_[address];
  if (stub == nullptr) stub = v1::Prefill::NewStub(rpc::MakeChannel(address, {}, &security_));
  return calls_.Call(std::move(request), deadline, std::move(callbacks), stub,
                     [&](grpc::ClientContext* context, const v1::PrefillRequest* message,
                         grpc::ClientReadReactor<v1::PrefillEvent>* reactor) {
                       stub->async()->Prefill(context, message, reactor);
                     });
}

}  // namespace baton::decode_service
