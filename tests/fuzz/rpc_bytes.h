// A stranger's bytes over a socket: any bytes to any method of a router, a prefill worker and a decode
// worker, through gRPC and the real services, in this process. Each call ends with a status that a client can
// act on, and afterwards no worker holds anything. The seeded test and the libFuzzer target both drive it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::fuzz {

// The first byte chooses the method, the second how soon the caller leaves.
absl::Status RunRpcBytes(std::span<const uint8_t> bytes);

}  // namespace baton::fuzz
