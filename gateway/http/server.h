// Server: HTTP/1.1 with keep-alive, asynchronous, on one thread: connections cost none. No client can keep
// others from it: each wait for a client has a limit, as have headers, bodies and connections, in all and per
// address. What is not plain HTTP/1.1 (two lengths, a length beside chunks, a line that is folded) is
// refused, and the connection closed, so that a proxy in front and this server never disagree where a request
// ends. Boost is seen by server.cc alone: it takes long to compile.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gateway/http/exchange.h"

namespace baton::gateway::http {

struct ServerOptions {
  // host:port, or [host]:port; port 0 lets the system choose.
  std::string listen = "127.0.0.1:0";
  size_t max_connections = 10000;
  // Of one address.
  size_t max_connections_per_address = 5000;
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 8 << 20;
  // From the first byte of a request, or from the connection's opening, to the end of its header.
  absl::Duration header_timeout = absl::Seconds(10);
  // From there to the end of its body.
  absl::Duration body_timeout = absl::Seconds(60);
  // From the end of an answer to the next request.
  absl::Duration idle_timeout = absl::Seconds(75);
  // Until the client has taken a piece of an answer.
  absl::Duration send_timeout = absl::Seconds(30);
};

// What a server has done so far.
struct ServerCounts {
  size_t connections = 0;  // open now
  size_t refused_connections = 0;
  size_t bad_requests = 0;
};

class Server {
 public:
  // `handler` is called on the server's thread for each request, and must not block or throw.
  // INVALID_ARGUMENT: `listen` is no host:port; UNAVAILABLE: it can't be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, Handler handler);
  ~Server();

  // host:port that clients can dial: the host as it was given.
  const std::string& address() const { return address_; }
  ServerCounts counts() const;

  // No new connections; answers under way may end until `grace` is over, then every connection is closed.
  // Also done by the destructor, without grace.
  void Stop(absl::Duration grace);

 private:
  class Impl;
  Server(std::unique_ptr<Impl> impl, std::string address);

  const std::unique_ptr<Impl> impl_;
  const std::string address_;
};

}  // namespace baton::gateway::http
