// HealthList: the method List of grpc.health.v1, which the gRPC library's health service does not have. One
// per server, which it outlives. Any thread.
#pragma once

#include <memory>
#include <string>

namespace grpc {
class ServerBuilder;
}

namespace baton::rpc {

class HealthList {
 public:
  HealthList();
  ~HealthList();

  // Once, before the server is built.
  void AddTo(grpc::ServerBuilder& builder);
  // From now on it says this of a service, by the name that Check knows it by.
  void Set(const std::string& service, bool serving);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::rpc
