// Bytes of a client of the gateway's server, over a socket: whatever its first bytes make of it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::gateway::http {

// INTERNAL: what came back is neither HTTP/1.1 nor HTTP/2, or the server does not hang up on a client that
// has said all it had to say.
absl::Status FuzzHttp(std::span<const uint8_t> bytes);

}  // namespace baton::gateway::http
