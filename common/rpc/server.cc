#include "common/rpc/server.h"

#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/limits.h"
#include "common/rpc/security.h"

namespace baton::rpc {
namespace {

// The most that a port for health checks needs.
constexpr ConnectionLimits kHealthConnections = {.total = 256, .per_address = 64};

using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const ServerOptions& options) {
  if (options.security == nullptr) return grpc::InsecureServerCredentials();
  return options.is_public ? options.security->PublicCredentials() : options.security->FleetCredentials();
}

bool IsLoopback(const std::string& address) {
  for (const char* local : {"127.", "localhost:", "[::1]:", "unix:"}) {
    if (address.starts_with(local)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  static std::once_flag plugins;
  std::call_once(plugins, [] { grpc::EnableDefaultHealthCheckService(true); });
  const Security* const security = options.security.get();
  const bool guarded = security != nullptr &&
                       (options.is_public ? security->has_certificate()
                                          : security->has_fleet_key() || (security->has_certificate() &&
                                                                          security->has_tls_channels()));
  if (!guarded && !IsLoopback(options.listen)) {
    spdlog::warn(
        "{} is reachable from other machines without TLS or a key: anybody can call it and read its traffic: "
        "see --tls-cert{}",
        options.listen, options.is_public ? "" : " and --fleet-key-file");
  }
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor,
                         Acceptor::Create({.address = options.listen,
                                           .limits = options.connections,
                                           .tls = security != nullptr && security->has_certificate(),
                                           .user_timeout = options.keepalive.timeout}));
  grpc::ServerBuilder builder;
  auto connections =
      builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, CredentialsOf(options));
  LimitStrangers(builder, options.opening);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  const auto milliseconds = [](absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); };
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options.keepalive.interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(options.keepalive.timeout));
  // Without a call nothing is waited for, and a client of gRPC's synchronous API answers no ping between
  // calls.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Peers ping once a second; that is not abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto reflection = std::make_unique<Reflection>();
  reflection->AddTo(builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError(absl::StrCat("gRPC can't serve on ", options.listen));
  std::unique_ptr<grpc::Server> health;
  std::unique_ptr<Acceptor> health_acceptor;
  auto health_reflection = std::make_unique<Reflection>();
  if (!options.health_listen.empty()) {
    BATON_ASSIGN_OR_RETURN(
        health_acceptor, Acceptor::Create({.address = options.health_listen, .limits = kHealthConnections}));
    grpc::ServerBuilder plain;
    auto checks = plain.experimental().AddExternalConnectionAcceptor(External::FROM_FD,
                                                                     grpc::InsecureServerCredentials());
    LimitStrangers(plain, options.opening);
    health_reflection->AddTo(plain);
    health = plain.BuildAndStart();
    if (health == nullptr) return absl::InternalError("gRPC can't serve health checks");
    health_acceptor->Start(std::move(checks));
  }
  acceptor->Start(std::move(connections));
  auto result = std::unique_ptr<Server>(new Server(std::move(reflection), std::move(server),
                                                   std::move(health_reflection), std::move(health),
                                                   acceptor->address()));
  if (health_acceptor != nullptr) result->health_address_ = health_acceptor->address();
  absl::MutexLock lock(&result->mutex_);
  result->acceptor_ = std::move(acceptor);
  result->health_acceptor_ = std::move(health_acceptor);
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

void Server::SetLive(bool live) {
  absl::MutexLock lock(&mutex_);
  SetStatus("live", live);
}

void Server::SetStatus(const std::string& service, bool serving) {
  for (grpc::Server* server : {server_.get(), health_.get()}) {
    if (server != nullptr) server->GetHealthCheckService()->SetServingStatus(service, serving);
  }
}

void Server::Shutdown(absl::Duration grace) {
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::Server> health;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Acceptor> health_acceptor;
  {
    absl::MutexLock lock(&mutex_);
    server = std::move(server_);
    health = std::move(health_);
    acceptor = std::move(acceptor_);
    health_acceptor = std::move(health_acceptor_);
  }
  if (server == nullptr) return;
  acceptor->Stop();
  server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(grace));
  server->Wait();
  server.reset();
  // Last: a process that drains still lives.
  if (health == nullptr) return;
  health_acceptor->Stop();
  health->Shutdown(std::chrono::system_clock::now());
}

}  // namespace baton::rpc
