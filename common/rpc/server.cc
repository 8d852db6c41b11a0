#include "common/rpc/server.h"

#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/rpc/security.h"

namespace baton::rpc {
namespace {

absl::Status CantListen(const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat("can't listen on ", address, ": is the port taken or the host not this machine's?"));
}

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const ServerOptions& options) {
  if (options.security == nullptr) return grpc::InsecureServerCredentials();
  return options.is_public ? options.security->PublicDoor() : options.security->FleetDoor();
}

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "localhost" || host == "[::1]" || host.starts_with("unix:");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  static std::once_flag plugins;
  std::call_once(plugins, [] { grpc::EnableDefaultHealthCheckService(true); });
  const size_t colon = options.listen.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("listen address \"", options.listen, "\": use host:port"));
  }
  const Security* const security = options.security.get();
  const bool guarded = security != nullptr &&
                       (options.is_public ? security->has_certificate()
                                          : security->has_fleet_key() || (security->has_certificate() &&
                                                                          security->has_tls_channels()));
  if (!guarded && !IsLoopback(options.listen.substr(0, colon))) {
    spdlog::warn(
        "{} is not this machine alone, and whoever reaches it is let in and can listen: see --tls-cert{}",
        options.listen, options.is_public ? "" : " and --fleet-key-file");
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, CredentialsOf(options), &port);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  const auto milliseconds = [](absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); };
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options.keepalive.interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(options.keepalive.timeout));
  // Without a call nobody waits for anything, and a client of gRPC's synchronous API answers no ping between
  // calls.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Peers ping once a second; that is not abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // A second server on the same port is an error, not a silent share.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto reflection = std::make_unique<Reflection>();
  reflection->AddTo(builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return CantListen(options.listen);
  }
  std::unique_ptr<grpc::Server> health;
  auto health_reflection = std::make_unique<Reflection>();
  std::string health_address;
  if (!options.health_listen.empty()) {
    grpc::ServerBuilder plain;
    int health_port = 0;
    plain.AddListeningPort(options.health_listen, grpc::InsecureServerCredentials(), &health_port);
    plain.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    health_reflection->AddTo(plain);
    health = plain.BuildAndStart();
    if (health == nullptr || health_port == 0) return CantListen(options.health_listen);
    health_address =
        absl::StrCat(options.health_listen.substr(0, options.health_listen.rfind(':')), ":", health_port);
  }
  std::string address = absl::StrCat(options.listen.substr(0, colon), ":", port);
  auto result = std::unique_ptr<Server>(new Server(std::move(reflection), std::move(server),
                                                   std::move(health_reflection), std::move(health),
                                                   std::move(address)));
  result->health_address_ = std::move(health_address);
  return result;
}

Server::Server(std::unique_ptr<Reflection> reflection, std::unique_ptr<grpc::Server> server,
               std::unique_ptr<Reflection> health_reflection, std::unique_ptr<grpc::Server> health,
               std::string address)
    : reflection_(std::move(reflection)),
      health_reflection_(std::move(health_reflection)),
      server_(std::move(server)),
      health_(std::move(health)),
      address_(std::move(address)) {
  absl::MutexLock lock(&mutex_);
  for (const char* name : {"", "live"}) SetStatus(name, true);
  for (const std::string& service : reflection_->services()) SetStatus(service, true);
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::SetServing(bool serving) {
  absl::MutexLock lock(&mutex_);
  SetStatus("", serving);
  for (const std::string& service : reflection_->services()) {
    // gRPC's own, health and reflection, answer as long as the process lives.
    if (!service.starts_with("grpc.")) SetStatus(service, serving);
  }
}

void Server::SetStatus(const std::string& service, bool serving) {
  for (grpc::Server* door : {server_.get(), health_.get()}) {
    if (door != nullptr) door->GetHealthCheckService()->SetServingStatus(service, serving);
  }
}

void Server::Shutdown(absl::Duration grace) {
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::Server> health;
  {
    absl::MutexLock lock(&mutex_);
    server = std::move(server_);
    health = std::move(health_);
  }
  if (server == nullptr) return;
  server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(grace));
  server->Wait();
  server.reset();
  // Last: a process that drains still lives.
  if (health != nullptr) health->Shutdown(std::chrono::system_clock::now());
}

}  // namespace baton::rpc
