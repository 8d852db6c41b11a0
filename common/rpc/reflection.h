// Reflection: tells clients that have no proto files (grpcurl, Postman) what a server offers, by
// grpc.reflection.v1 and by v1alpha, which older clients ask. The gRPC library's own plugin knows v1alpha
// alone, lacks the health service's description, and keeps a thread for each open stream; here nothing waits.
// One per server, which it outlives. Any thread. Refuses requests of more than 4 KiB.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace grpc {
class ServerBuilder;
}

namespace baton::rpc {

inline constexpr char kHealthService[] = "grpc.health.v1.Health";

class Reflection {
 public:
  Reflection();
  ~Reflection();

  // Once, before the server is built.
  void AddTo(grpc::ServerBuilder& builder);
  // The full names of all services of the server, its health service and these included. Known once it is
  // built.
  const std::vector<std::string>& services() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::rpc
