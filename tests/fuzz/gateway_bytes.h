// Bodies of HTTP requests, and streams of a router, as the gateway's mappings read them.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::gateway {

// The first byte says what the others are: a body of one of the endpoints, or messages of a stream, each
// behind a byte with its length. INTERNAL: a mapping failed otherwise than by INVALID_ARGUMENT, or wrote what
// no client can read.
absl::Status FuzzGateway(std::span<const uint8_t> bytes);

}  // namespace baton::gateway
