// Acceptor: the listening sockets of a server and the thread that accepts on them, instead of gRPC's: that of
// gRPC 1.51 stops for good when descriptors run out, and has no limits. It admits a limited number of
// connections in all and from each address, closes the others at once, and keeps a descriptor in reserve, so
// that it can close them when there is none left. Admitted connections are guarded (guarded_socket.h) and go
// to gRPC, which owns them from then on. Owned by Server, or by StartingServer before it. Start, Pause and
// Stop: one thread.
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/listening.h"
#include "common/rpc/connection_ledger.h"

namespace baton::rpc {

class Acceptor {
 public:
  struct Options {
    std::string address;  // as Listen takes it
    // Lowered to the number of files that the process may open.
    ConnectionLimits limits;
    bool tls = false;
    absl::Duration user_timeout = absl::Seconds(20);
  };
  // Binds and listens; nothing is accepted yet. Raises the process's soft limit of open files to the hard
  // one.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(const Options& options);
  // Stops.
  ~Acceptor();

  // The address that clients can dial.
  const std::string& address() const { return listening_.address; }
  // Connections that gRPC has and has not closed.
  int connections() const { return ledger_->total(); }

  // Accepts from now on, for a server that has been started.
  void Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server);
  // Accepts no more until the next Start, which may be for another server: connections wait in the kernel
  // meanwhile. Waits for the thread.
  void Pause();
  // Accepts no more, closes the listening sockets and waits for the thread. A second call does nothing.
  void Stop();

 private:
  struct Housekeeping;
  Acceptor(const Options& options, Listening listening);

  void Run();
  // False if there is neither a descriptor left nor the reserve.
  bool AcceptAll(int listening);
  void Admit(int listening, int connection);

  const bool tls_;
  const Listening listening_;
  // These two outlive the acceptor while gRPC holds connections.
  const std::shared_ptr<ConnectionLedger> ledger_;
  const std::shared_ptr<Housekeeping> housekeeping_;
  int reserve_;
  bool stopped_ = false;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;
  std::thread thread_;
};

}  // namespace baton::rpc
