// Limits that a router holds its clients to, and that clients count on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::protocol {

// The choices of one request (RequestOptions.n).
inline constexpr uint32_t kMaxChoices = 8;
// The bytes of a client's own name for a call (kClientIdMetadata); the rest of a longer one is cut off.
inline constexpr size_t kMaxClientIdBytes = 128;
// The bytes of RequestOptions.idempotency_key.
inline constexpr size_t kMaxIdempotencyKeyBytes = 128;

}  // namespace baton::protocol
