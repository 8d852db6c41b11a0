// Routers: the routers behind a gateway, and which of them has the next call: of those that are ready, the
// one with the fewest calls of this gateway under way. They are given as addresses and as DNS names, each of
// whose addresses is a router; names are asked for again every few seconds, so that new routers get calls at
// once, and those that have left get none. Any thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/resolver.h"
#include "common/base/service_address.h"
#include "common/rpc/security.h"
#include "gateway/probe.h"
#include "grpc/health/v1/health.pb.h"

namespace baton::gateway {

// One router. Its owners make calls by it.
struct Router {
  using HealthStub =
      grpc::TemplatedGenericStub<grpc::health::v1::HealthCheckRequest, grpc::health::v1::HealthCheckResponse>;

  // `name`: under which DNS gave the address; empty: under none.
  Router(std::string address, const std::string& name, const rpc::Security* security);

  // It says that it takes requests (grpc.health.v1). Asks for a connection if there is none.
  bool Ready() const;

  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  const std::shared_ptr<grpc::Channel> health;
  v1::Inference::Stub inference;
  grpc::GenericStub any;
  HealthStub checks;
  std::atomic<int> calls = 0;  // under way
};

class Routers {
 public:
  // `given`: at least one. A resolver that is null is the system's. `security`
  // (null: neither TLS nor keys) and `probe` outlive it.
  Routers(const std::vector<ServiceAddress>& given, const rpc::Security* security,
          std::shared_ptr<Resolver> resolver, absl::Duration resolve_every, Probe& probe);
  ~Routers();

  // The router of the next call, which counts as under way for as long as the pointer is held. `avoid`: the
  // address at which the call failed before; another that is as ready is taken if there is one. Null: no
  // router is known.
  std::shared_ptr<Router> Pick(std::string_view avoid = "");

  // Why Pick has none. UNAVAILABLE.
  absl::Status NoneKnown() const;

 private:
  struct State;
  // Asks DNS, and counts the routers that are ready, until the end.
  void Look();

  const std::shared_ptr<State> state_;  // answers of DNS that come late hold it, too
  std::thread thread_;
};

}  // namespace baton::gateway
