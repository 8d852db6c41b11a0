// Server: a gRPC server with what every Baton process offers: grpc.health.v1, reflection, keepalive, limits
// on the memory that strangers can take (acceptor.h, limits.h). Any thread may call any method, also while
// another shuts it down.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/channel.h"
#include "common/rpc/health_list.h"
#include "common/rpc/reflection.h"

namespace baton::rpc {

struct ServerOptions {
  // host:port; port 0 lets the system choose.
  std::string listen = "127.0.0.1:0";
  // Empty, or host:port of a second port without TLS that serves only grpc.health.v1 (and its reflection),
  // because kubelets speak no TLS.
  std::string health_listen;
  // Null: no TLS, and open to all. Otherwise a server for the fleet, or a public one.
  std::shared_ptr<const Security> security;
  bool is_public = false;
  Keepalive keepalive = kServerKeepalive;
  int max_receive_bytes = kMaxMessageBytes;
  // Services get messages that are compressed with gzip as they came, and inflate them with a bound: those
  // that take raw messages can. Of others gRPC's parser refuses such messages.
  bool takes_gzip = false;
  // The services end their calls at their deadlines themselves, and say what was used. gRPC's timer, which
  // would end them too, does not run: where both come at once, gRPC 1.51 sends trailers twice, and HTTP/2
  // libraries that are strict about it close the connection, with all calls on it.
  bool ends_calls = false;
  ConnectionLimits connections;
  // From the connection to the client's SETTINGS, TLS included.
  absl::Duration opening = absl::Seconds(10);
  // After so long, give or take a tenth, a client is asked to make a new connection (GOAWAY). The old one
  // takes no new calls, and is closed when its last has ended, however long that takes.
  absl::Duration max_connection_age = absl::InfiniteDuration();
};

class Server {
 public:
  // Serves `services`, which outlive the server. UNAVAILABLE if the address can't be bound. `place`: the
  // bound socket of that address, from a StartingServer; null: it is bound here.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services,
                                                       std::unique_ptr<Acceptor> place = nullptr);
  ~Server();

  // host:port that clients can dial.
  const std::string& address() const { return address_; }
  // Address of the port for health checks; empty without one.
  const std::string& health_address() const { return health_address_; }
  // Sets the answer of grpc.health.v1 for "" and the full name of each service, on both ports: ready for
  // work. Its service "live" is SERVING, whatever its peers do, until SetLive says otherwise. Does nothing
  // once a shutdown has begun: set false before one.
  void SetServing(bool serving);
  // The same for one more name, which is known from now on; one that is not public, on the port for health
  // checks alone.
  void SetServing(const std::string& name, bool serving, bool is_public);
  // Sets the answer of "live": false asks whoever watches over this process to replace it.
  void SetLive(bool live);
  // No new calls; calls still running after `grace` are cancelled. Returns when all have ended; a second
  // caller returns at once.
  void Shutdown(absl::Duration grace);

 private:
  // Services that every server has, and that outlive it.
  struct Common {
    Reflection reflection;
    HealthList list;
    void AddTo(grpc::ServerBuilder& builder);
  };

  Server(std::unique_ptr<Common> common, std::unique_ptr<grpc::Server> server,
         std::unique_ptr<Common> health_common, std::unique_ptr<grpc::Server> health, std::string address);
  void SetStatus(const std::string& service, bool serving, bool is_public = true)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<Common> common_;
  const std::unique_ptr<Common> health_common_;
  absl::Mutex mutex_;
  // Null once a shutdown has begun.
  std::unique_ptr<grpc::Server> server_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> health_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Acceptor> acceptor_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Acceptor> health_acceptor_ ABSL_GUARDED_BY(mutex_);
  std::string health_address_;
  std::string address_;
};

// StartingServer: holds the address of a server whose process still loads what it will serve. Every call gets
// StartingError, and health checks hear that nothing is served. What callers hear of a process that lives is
// another thing than a refused connection, which may be of a machine that is gone. Owned by one thread.
class StartingServer {
 public:
  // Only what `options` say of the address, of TLS and of connections counts; there is no port for health
  // checks. UNAVAILABLE if the address can't be bound.
  static absl::StatusOr<std::unique_ptr<StartingServer>> Start(const ServerOptions& options);
  ~StartingServer();

  // host:port that callers can dial.
  const std::string& address() const { return acceptor_->address(); }
  // Ends it, once. Callers that connect from now on wait for the server that is given what this returns.
  std::unique_ptr<Acceptor> HandOver();

 private:
  class Refusal;
  StartingServer(std::unique_ptr<Refusal> refusal, std::unique_ptr<grpc::Server> server,
                 std::unique_ptr<Acceptor> acceptor);
  void End();

  const std::unique_ptr<Refusal> refusal_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace baton::rpc
