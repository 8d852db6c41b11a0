// PageServer: one page over HTTP/1.1, on a thread of its own, for those who watch a process. No client can
// keep others from the page, whatever it sends or leaves undone: each wait for a client has a time limit, and
// when the maximum number of connections is open, the one that has waited longest for its client is closed
// for the new one. Refuses methods other than GET and HEAD, bodies and long headers. The destructor closes
// every connection and waits for no client. Boost is seen by page_server.cc alone: it takes long to compile.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::telemetry {

struct PageServerOptions {
  // host:port, or [host]:port; port 0 lets the system choose.
  std::string listen = "127.0.0.1:0";
  std::string path = "/metrics";
  std::string content_type = "text/plain; charset=utf-8";
  size_t max_connections = 64;
  size_t max_header_bytes = 8192;
  // From the first byte of a request, or from the connection's opening, to the end of its header.
  absl::Duration request_timeout = absl::Seconds(5);
  // From the end of an answer to the next request on the same connection: longer than a scrape interval.
  absl::Duration idle_timeout = absl::Seconds(90);
  // Until the client has taken a whole answer.
  absl::Duration send_timeout = absl::Seconds(10);
};

class PageServer {
 public:
  // `page` is called for each request, on the server's thread, and must not throw. INVALID_ARGUMENT: `listen`
  // is no host:port; UNAVAILABLE: it can't be bound.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(const PageServerOptions& options,
                                                           std::function<std::string()> page);
  ~PageServer();

  // host:port that clients can dial: the host as it was given.
  const std::string& address() const { return address_; }
  // How many connections are open. Any thread.
  size_t connections() const;

 private:
  class Impl;
  PageServer(std::unique_ptr<Impl> impl, std::string address);

  const std::unique_ptr<Impl> impl_;
  const std::string address_;
};

}  // namespace baton::telemetry
