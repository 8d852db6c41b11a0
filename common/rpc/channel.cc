#include "common/rpc/channel.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_interceptor.h>

#include <utility>
#include <vector>

#include "common/rpc/security.h"

namespace baton::rpc {
namespace {

// Adds our keys to the metadata of every call.
class KeyBearer final : public grpc::experimental::Interceptor {
 public:
  explicit KeyBearer(const Security::Shown& keys) : keys_(keys) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      auto* metadata = methods->GetSendInitialMetadata();
      if (!keys_.fleet_key.empty()) metadata->insert({kFleetKeyMetadata, keys_.fleet_key});
      if (!keys_.api_key.empty()) metadata->insert({"authorization", "Bearer " + keys_.api_key});
    }
    methods->Proceed();
  }

 private:
  const Security::Shown& keys_;
};

class KeyBearers final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit KeyBearers(Security::Shown keys) : keys_(std::move(keys)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new KeyBearer(keys_);
  }

 private:
  const Security::Shown keys_;
};

std::shared_ptr<grpc::Channel> Make(const std::string& address, const Keepalive& keepalive,
                                    const Security* security, const std::string& name,
                                    grpc::ChannelArguments arguments) {
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(keepalive.interval)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(keepalive.timeout)));
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(keepalive.idle)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Messages are never compressed: this drops the filter that would check each message for it.
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // dns:///NAME:PORT means all addresses of the name, each in turn; without it a channel stays with one.
  if (address.starts_with("dns:///")) arguments.SetLoadBalancingPolicyName("round_robin");
  if (security == nullptr) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  const std::string& peer = security->peer_name().empty() ? name : security->peer_name();
  if (!peer.empty()) arguments.SetSslTargetNameOverride(peer);
  const Security::Shown keys = security->shown();
  if (keys.fleet_key.empty() && keys.api_key.empty()) {
    return grpc::CreateCustomChannel(address, security->Channel(), arguments);
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> bearers;
  bearers.push_back(std::make_unique<KeyBearers>(keys));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, security->Channel(), arguments,
                                                                 std::move(bearers));
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Keepalive& keepalive,
                                           const Security* security, const std::string& name) {
  return Make(address, keepalive, security, name, {});
}

std::shared_ptr<grpc::Channel> MakeHealthChannel(const std::string& address, const Keepalive& keepalive,
                                                 const Security* security, const std::string& name,
                                                 std::string_view service) {
  grpc::ChannelArguments arguments;
  // gRPC asks for the health of what a policy chooses from, and pick_first has no choice.
  arguments.SetLoadBalancingPolicyName("round_robin");
  arguments.SetServiceConfigJSON(fmt::format(R"({{"healthCheckConfig": {{"serviceName": "{}"}}}})", service));
  return Make(address, keepalive, security, name, std::move(arguments));
}

}  // namespace baton::rpc
