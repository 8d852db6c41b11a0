// Gateway: OpenAI's and Anthropic's HTTP APIs, and gRPC, in front of routers, as main and the tests start
// it. Stateless: it maps requests and answers, and keeps nothing between them. Start and Stop from one
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/resolver.h"
#include "common/rpc/security_options.h"
#include "common/telemetry/metrics.h"
#include "gateway/http/server.h"

namespace baton::gateway {

struct GatewayOptions {
  // Addresses host:port and names dns:///name:port, each address of which is a router's.
  std::vector<std::string> routers;
  // Between two questions for the addresses of a name. Null: the system is asked.
  absl::Duration resolve_every = absl::Seconds(5);
  std::shared_ptr<Resolver> resolver = nullptr;
  // By whom it knows the router. The certificate is shown to clients, who then reach it by TLS alone, and to
  // a router that asks for one.
  rpc::SecurityOptions security;
  http::ServerOptions http;
  // Leave out the line with which Claude Code begins its system prompt (AnthropicRules).
  bool drop_billing_header = true;
  // Serve a page for people at /.
  bool page = false;
  // Origins whose web pages may use it and read its answers; "*" is all.
  std::vector<std::string> cors_origins;
  // Seconds of silence after which a waiting client gets a comment line, and until which an error still has a
  // status line of its own.
  absl::Duration comment_after = absl::Seconds(10);
  absl::Duration head_after = absl::Seconds(1);
};

class Gateway {
 public:
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(const GatewayOptions& options);
  ~Gateway();

  // host:port of the HTTP endpoint.
  const std::string& address() const;
  const telemetry::Metrics& metrics() const;
  http::ServerCounts counts() const;

  // No new requests; answers under way may end within `grace`.
  void Stop(absl::Duration grace);

 private:
  struct Parts;
  explicit Gateway(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::gateway
