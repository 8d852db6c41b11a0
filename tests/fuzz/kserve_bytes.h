// Requests of other protocols than ours, as any client may send them.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton::router {

// Bytes as a request of KServe's protocol or of vLLM's, by the first one. A refusal is INVALID_ARGUMENT (or
// NOT_FOUND, of a version) in words; what is read is no larger than what came. INTERNAL: it is not so.
absl::Status FuzzForeignRequest(std::span<const uint8_t> bytes);

}  // namespace baton::router
