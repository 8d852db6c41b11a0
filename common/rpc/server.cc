#include "common/rpc/server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/limits.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"

namespace baton::rpc {
namespace {

// The most that a port for health checks needs.
constexpr ConnectionLimits kHealthConnections = {.total = 256, .per_address = 64};

using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const ServerOptions& options) {
  if (options.security == nullptr) return grpc::InsecureServerCredentials();
  return options.is_public ? options.security->PublicCredentials() : options.security->FleetCredentials();
}

absl::StatusOr<std::unique_ptr<Acceptor>> Bind(const ServerOptions& options) {
  return Acceptor::Create({.address = options.listen,
                           .limits = options.connections,
                           .tls = options.security != nullptr && options.security->has_certificate(),
                           .user_timeout = options.keepalive.timeout});
}

// In all servers of the process that are made from now on.
void AnswerHealthChecks() {
  static std::once_flag plugins;
  std::call_once(plugins, [] { grpc::EnableDefaultHealthCheckService(true); });
}

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

void SetPings(grpc::ServerBuilder& builder, const Keepalive& keepalive) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(keepalive.interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(keepalive.timeout));
  // Without a call nothing is waited for, and a client of gRPC's synchronous API answers no ping between
  // calls.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Peers ping once a second; that is not abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

bool IsLoopback(const std::string& address) {
  for (const char* local : {"127.", "localhost:", "[::1]:", "unix:"}) {
    if (address.starts_with(local)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services,
                                                      std::unique_ptr<Acceptor> acceptor) {
  AnswerHealthChecks();
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
  if (acceptor == nullptr) {
    BATON_ASSIGN_OR_RETURN(acceptor, Bind(options));
  }
  grpc::ServerBuilder builder;
  auto connections =
      builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, CredentialsOf(options));
  LimitStrangers(builder, options.opening, options.takes_gzip);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  SetPings(builder, options.keepalive);
  if (options.ends_calls) builder.AddChannelArgument(GRPC_ARG_ENABLE_DEADLINE_CHECKS, 0);
  if (options.max_connection_age < absl::InfiniteDuration()) {
    // No GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS: at its end gRPC would break the calls under way.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(options.max_connection_age));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto common = std::make_unique<Common>();
  common->AddTo(builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError(absl::StrCat("gRPC can't serve on ", options.listen));
  std::unique_ptr<grpc::Server> health;
  std::unique_ptr<Acceptor> health_acceptor;
  auto health_common = std::make_unique<Common>();
  if (!options.health_listen.empty()) {
    BATON_ASSIGN_OR_RETURN(
        health_acceptor, Acceptor::Create({.address = options.health_listen, .limits = kHealthConnections}));
    grpc::ServerBuilder plain;
    auto checks = plain.experimental().AddExternalConnectionAcceptor(External::FROM_FD,
                                                                     grpc::InsecureServerCredentials());
    LimitStrangers(plain, options.opening);
    health_common->AddTo(plain);
    health = plain.BuildAndStart();
    if (health == nullptr) return absl::InternalError("gRPC can't serve health checks");
    health_acceptor->Start(std::move(checks));
  }
  acceptor->Start(std::move(connections));
  auto result =
      std::unique_ptr<Server>(new Server(std::move(common), std::move(server), std::move(health_common),
                                         std::move(health), acceptor->address()));
  if (health_acceptor != nullptr) result->health_address_ = health_acceptor->address();
  absl::MutexLock lock(&result->mutex_);
  result->acceptor_ = std::move(acceptor);
  result->health_acceptor_ = std::move(health_acceptor);
  return result;
}

void Server::Common::AddTo(grpc::ServerBuilder& builder) {
  list.AddTo(builder);
  reflection.AddTo(builder);
}

Server::Server(std::unique_ptr<Common> common, std::unique_ptr<grpc::Server> server,
               std::unique_ptr<Common> health_common, std::unique_ptr<grpc::Server> health,
               std::string address)
    : common_(std::move(common)),
      health_common_(std::move(health_common)),
      server_(std::move(server)),
      health_(std::move(health)),
      address_(std::move(address)) {
  absl::MutexLock lock(&mutex_);
  for (const char* name : {"", "live"}) SetStatus(name, true);
  for (const std::string& service : common_->reflection.services()) SetStatus(service, true);
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::SetServing(bool serving) {
  absl::MutexLock lock(&mutex_);
  SetStatus("", serving);
  for (const std::string& service : common_->reflection.services()) {
    // gRPC's own, health and reflection, answer as long as the process lives.
    if (!service.starts_with("grpc.")) SetStatus(service, serving);
  }
}

void Server::SetServing(const std::string& name, bool serving, bool is_public) {
  absl::MutexLock lock(&mutex_);
  SetStatus(name, serving, is_public);
}

void Server::SetLive(bool live) {
  absl::MutexLock lock(&mutex_);
  SetStatus("live", live);
}

void Server::SetStatus(const std::string& service, bool serving, bool is_public) {
  const auto set = [&](grpc::Server* server, Common& common) {
    if (server == nullptr) return;
    server->GetHealthCheckService()->SetServingStatus(service, serving);
    common.list.Set(service, serving);
  };
  if (is_public) set(server_.get(), *common_);
  set(health_.get(), *health_common_);
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

class StartingServer::Refusal final : public grpc::CallbackGenericService {
  class Call final : public grpc::ServerGenericBidiReactor {
   public:
    Call() { Finish(ToGrpc(StartingError())); }
    void OnDone() override { delete this; }
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Call();
  }
};

absl::StatusOr<std::unique_ptr<StartingServer>> StartingServer::Start(const ServerOptions& options) {
  AnswerHealthChecks();
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor, Bind(options));
  auto refusal = std::make_unique<Refusal>();
  grpc::ServerBuilder builder;
  auto connections =
      builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, CredentialsOf(options));
  LimitStrangers(builder, options.opening);
  SetPings(builder, options.keepalive);
  builder.RegisterCallbackGenericService(refusal.get());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError(absl::StrCat("gRPC can't serve on ", options.listen));
  server->GetHealthCheckService()->SetServingStatus(false);
  acceptor->Start(std::move(connections));
  return std::unique_ptr<StartingServer>(
      new StartingServer(std::move(refusal), std::move(server), std::move(acceptor)));
}

StartingServer::StartingServer(std::unique_ptr<Refusal> refusal, std::unique_ptr<grpc::Server> server,
                               std::unique_ptr<Acceptor> acceptor)
    : refusal_(std::move(refusal)), server_(std::move(server)), acceptor_(std::move(acceptor)) {}

StartingServer::~StartingServer() {
  if (acceptor_ != nullptr) End();
}

void StartingServer::End() {
  acceptor_->Pause();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

std::unique_ptr<Acceptor> StartingServer::HandOver() {
  End();
  return std::move(acceptor_);
}

}  // namespace baton::rpc
