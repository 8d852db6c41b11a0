#include "cli/serve/service_health.h"

#include <utility>

#include "common/base/status.h"
#include "common/rpc/server.h"

namespace baton::cli {

absl::StatusOr<std::unique_ptr<ServiceHealth>> ServiceHealth::Start(const std::string& listen) {
  // A server has a port for calls beside the one for health checks; nothing is served there.
  BATON_ASSIGN_OR_RETURN(auto server,
                         rpc::Server::Start({.listen = "127.0.0.1:0", .health_listen = listen}, {}));
  server->SetServing(false);
  return std::unique_ptr<ServiceHealth>(new ServiceHealth(std::move(server)));
}

ServiceHealth::ServiceHealth(std::unique_ptr<rpc::Server> server) : server_(std::move(server)) {}
ServiceHealth::~ServiceHealth() = default;

const std::string& ServiceHealth::address() const { return server_->health_address(); }
void ServiceHealth::SetReady() { server_->SetServing(true); }

}  // namespace baton::cli
