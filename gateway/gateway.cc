#include "gateway/gateway.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/status.h"
#include "common/rpc/security.h"
#include "gateway/answer_format.h"
#include "gateway/pass_through.h"
#include "gateway/probe.h"
#include "gateway/routers.h"
#include "gateway/routes.h"

namespace baton::gateway {

struct Gateway::Parts {
  Parts(const GatewayOptions& options, const std::vector<ServiceAddress>& addresses,
        std::shared_ptr<const rpc::Security> proof)
      : security(std::move(proof)),
        routers(addresses, security.get(), options.resolver, options.resolve_every, probe),
        routes(routers,
               {.rules = {.drop_billing_header = options.drop_billing_header},
                .times = {.comment_after = options.comment_after, .head_after = options.head_after},
                .page = options.page,
                .listen = options.http.listen,
                .cors_origins = options.cors_origins},
               probe),
        calls(routers, probe) {}

  const std::shared_ptr<const rpc::Security> security;
  telemetry::Metrics metrics;
  Probe probe{metrics};
  Routers routers;
  Routes routes;
  PassThrough calls;
  std::unique_ptr<http::Server> server;
  // Every exchange holds it; its end is the end of the last one.
  absl::Notification none_left;
  std::shared_ptr<void> alive{this, [this](void*) { none_left.Notify(); }};
};

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayOptions& options) {
  if (options.routers.empty()) return absl::InvalidArgumentError("no router is given");
  std::vector<ServiceAddress> routers;
  for (const std::string& text : options.routers) {
    BATON_ASSIGN_OR_RETURN(routers.emplace_back(), ServiceAddress::Parse(text));
  }
  BATON_ASSIGN_OR_RETURN(auto security, rpc::Security::Load(options.security));
  auto parts = std::make_unique<Parts>(options, routers, std::move(security));
  Parts& served = *parts;
  http::ServerOptions http = http::Affordable(options.http);
  served.probe.MostConnections(http.max_connections);
  http.tls_cert = options.security.cert;
  http.tls_key = options.security.key;
  http.tls_reload_interval = options.security.reload_interval;
  http.refusal = Refusal;
  BATON_ASSIGN_OR_RETURN(
      parts->server,
      http::Server::Start(
          http,
          [&served](std::shared_ptr<http::Exchange> exchange) {
            served.routes.Serve(exchange, served.alive);
          },
          [&served](std::shared_ptr<http::Call> call) { served.calls.Start(std::move(call), served.alive); },
          [&served](const http::ServerCounts& counts) { served.probe.Connections(counts); }));
  return std::unique_ptr<Gateway>(new Gateway(std::move(parts)));
}

Gateway::Gateway(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Gateway::~Gateway() { Stop(absl::ZeroDuration()); }

const std::string& Gateway::address() const { return parts_->server->address(); }
const telemetry::Metrics& Gateway::metrics() const { return parts_->metrics; }
http::ServerCounts Gateway::counts() const { return parts_->server->counts(); }
void Gateway::Stop(absl::Duration grace) {
  if (parts_->alive == nullptr) return;
  parts_->server->Stop(grace);
  parts_->alive.reset();
  parts_->none_left.WaitForNotification();
}

}  // namespace baton::gateway
