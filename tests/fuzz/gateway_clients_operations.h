// Clients of a gateway, over sockets, that come, say whole requests or parts of them, take their answers or
// let them lie, and leave at any byte. Whatever they do, the gateway answers others, and nothing of them is
// left in it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace baton::gateway {

// The number of operations. INTERNAL: somebody else is not answered, or connections or bytes are left.
absl::StatusOr<int64_t> RunGatewayClientsOperations(std::span<const uint8_t> bytes);

}  // namespace baton::gateway
