// ServiceHealth: what `baton serve` answers for all of its processes together on a port of its own
// (grpc.health.v1, without TLS), as a kubelet asks a pod. "live" is SERVING as long as this process answers.
// "" is SERVING from the time when every worker was ready once: a worker that is started again later is seen
// by the routers that watch it, and is no reason to take the others from them. Any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton::rpc {
class Server;
}

namespace baton::cli {

class ServiceHealth {
 public:
  // UNAVAILABLE: the address can't be bound.
  static absl::StatusOr<std::unique_ptr<ServiceHealth>> Start(const std::string& listen);
  ~ServiceHealth();

  const std::string& address() const;
  void SetReady();

 private:
  explicit ServiceHealth(std::unique_ptr<rpc::Server> server);
  const std::unique_ptr<rpc::Server> server_;
};

}  // namespace baton::cli
