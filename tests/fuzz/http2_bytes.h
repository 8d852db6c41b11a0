// Bytes of a client that speaks HTTP/2, as the gateway's session reads them: without sockets, by a clock that
// the bytes turn.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::gateway::http {

// The first byte says what the others are: bytes behind the preface, or operations (frames, whole requests
// and calls, time that passes, a server on its way out). INTERNAL: something is still held when the client is
// gone, or much more was said than asked.
absl::Status FuzzHttp2(std::span<const uint8_t> bytes);

}  // namespace baton::gateway::http
