// The ids that several rooms share.
#pragma once

#include <cstdint>

#include "common/base/named_type.h"

namespace baton {

// Index in the model's vocabulary.
using TokenId = NamedType<int32_t, struct TokenIdTag>;
// Index of a block in one worker's KV pool.
using BlockId = NamedType<uint32_t, struct BlockIdTag>;
// Grows by one each time that a block is allocated; a write that names an older generation is refused.
using Generation = NamedType<uint32_t, struct GenerationTag>;
// The right to fill certain blocks of one decode worker (see protocol/fleet/ticket.h).
using TicketId = NamedType<uint64_t, struct TicketIdTag>;
// A sequence inside one engine.
using SequenceId = NamedType<uint64_t, struct SequenceIdTag>;
// Drawn at random when a process starts: tickets and bookings from before a restart are void.
using Incarnation = NamedType<uint64_t, struct IncarnationTag>;

// Tokens per KV block, the same in every process: block hashes and the wire depend on it.
inline constexpr int kBlockTokens = 16;

// Blocks that `tokens` tokens touch.
constexpr int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace baton
