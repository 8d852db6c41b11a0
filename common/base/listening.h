// Listening: the bound, listening sockets of one address that a server was given: gRPC's, and those of HTTP.
// Plain data; the holder closes the sockets.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton {

struct Listening {
  struct Socket {
    int descriptor;  // non-blocking
    int family;      // AF_INET, AF_INET6 or AF_UNIX
  };
  std::vector<Socket> sockets;
  // The address that clients dial, with the port that the system chose.
  std::string address;
};

// `address`: host:port, where port 0 lets the system choose, a wildcard host means IPv6 and IPv4, and a name
// all its addresses. `user_timeout` is TCP's, of the connections: one whose other host acknowledges nothing
// for so long ends; zero: the system's. INVALID_ARGUMENT, or UNAVAILABLE if it can't be bound.
absl::StatusOr<Listening> ListenTcp(const std::string& address, absl::Duration user_timeout = {});

// ListenTcp, or listens on unix:PATH, which must not exist.
absl::StatusOr<Listening> Listen(const std::string& address, absl::Duration user_timeout);

}  // namespace baton
