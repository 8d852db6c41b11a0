// Listening: the bound, listening sockets of one address that a server was given. Plain data; the holder
// closes them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::rpc {

struct Listening {
  // Non-blocking.
  std::vector<int> sockets;
  // The address that clients can dial, with the port that the system chose.
  std::string address;
};

// `address`: host:port, where port 0 lets the system choose, a wildcard host means IPv6 and IPv4, and a name
// all its addresses; or unix:PATH, which must not exist. `user_timeout` is TCP's, of the connections: one
// whose other host acknowledges nothing for so long ends. INVALID_ARGUMENT, or UNAVAILABLE if it can't be
// bound.
absl::StatusOr<Listening> Listen(const std::string& address, absl::Duration user_timeout);

}  // namespace baton::rpc
