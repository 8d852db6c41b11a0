// Server: HTTP/1.1 with keep-alive and HTTP/2 on one port, asynchronous, on one thread: connections and
// streams cost none. No client can keep others from it: each wait for a client has a limit, as have headers,
// bodies, connections and streams, in all and per address, and what all clients have the process hold. What
// is not plain HTTP/1.1 (two lengths, a length beside chunks, a line that is folded) is refused, and the
// connection closed, so that a proxy in front and this server never disagree where a request ends. gRPC
// calls, over HTTP/2 alone, have a handler of their own. TLS, if it has a certificate. Boost is seen by this
// room's sources alone: it takes long to compile.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gateway/http/call.h"
#include "gateway/http/exchange.h"

namespace baton::gateway::http {

struct ServerOptions {
  // host:port, or [host]:port; port 0 lets the system choose.
  std::string listen = "127.0.0.1:0";
  // Beyond it a connection that waits for its client is closed for a new one, or the new one.
  size_t max_connections = 10000;
  size_t max_connections_per_address = 5000;
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 8 << 20;
  // Bytes that clients have the whole process hold: bodies, messages, answers that they do not take, and
  // those in one piece that are not whole yet.
  // Beyond it requests are turned away.
  size_t max_held_bytes = 512 << 20;
  // Streams of HTTP/2: in all, of one address, of one connection.
  size_t max_streams = 20000;
  size_t max_streams_per_address = 10000;
  size_t max_streams_per_connection = 256;
  // A message of a gRPC call.
  size_t max_message_bytes = 16 << 20;
  // Limits of one connection of HTTP/2 for what costs a client nothing and the server something: at once, and
  // in each second. Resets: those that it sends, and those that it makes the server send. Control frames:
  // pings, settings, priorities, window updates, empty ones; three more for each piece of data.
  size_t reset_burst = 1000;
  size_t resets_per_second = 50;
  size_t control_burst = 2000;
  size_t controls_per_second = 200;
  // From the first byte of a request, or from the connection's opening, to the end of its header.
  absl::Duration header_timeout = absl::Seconds(10);
  // From there to the end of its body, or to a gRPC call's first message; and for each message of a call,
  // from its first byte to its last.
  absl::Duration body_timeout = absl::Seconds(60);
  // From the end of an answer to the next request.
  absl::Duration idle_timeout = absl::Seconds(75);
  // With streams of HTTP/2 open: after so long without a byte the client is pinged, and after twice that
  // given up.
  absl::Duration ping_after = absl::Seconds(20);
  // Until the client has taken a piece of an answer.
  absl::Duration send_timeout = absl::Seconds(30);
  // The answer to what is no request, or too long a one, with its status. `path`: as far as it is known.
  // Null: its words as a text.
  std::function<Response(int status, std::string_view path, const std::string& why)> refusal;
  // PEM. With both the server speaks TLS, whose handshake has header_timeout; a file that changes is read
  // again.
  std::string tls_cert;
  std::string tls_key;
  absl::Duration tls_reload_interval = absl::Seconds(5);
};

// A server's counts, since its start or now.
struct ServerCounts {
  size_t connections = 0;  // open now
  size_t refused_connections = 0;
  size_t bad_requests = 0;
  size_t failed_handshakes = 0;
  size_t streams = 0;  // of HTTP/2, open now
  size_t floods = 0;   // connections of HTTP/2 that were ended for what they did
  size_t refused_streams = 0;
  size_t held_bytes = 0;  // now
};

// Is told the counts whenever one has changed, held_bytes within a second, on the server's thread. It must
// not block.
using CountsObserver = std::function<void(const ServerCounts&)>;

// The same with as many connections as files may be open, less those that the process needs itself. Raises
// the limit of open files as far as the system lets it.
ServerOptions Affordable(ServerOptions options);

class Server {
 public:
  // The options are made affordable. The handlers are called on the server's thread, for each request and
  // each gRPC call, and must not block or throw. Without one for calls there are none. INVALID_ARGUMENT:
  // `listen` is no host:port, or the certificate is none; UNAVAILABLE: it can't be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, Handler handler,
                                                       CallHandler call_handler = nullptr,
                                                       CountsObserver observer = nullptr);
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
