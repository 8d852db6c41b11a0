// What a prefill worker sends when a decode worker measures its link: blocks of its pool as they are, with
// nothing computed. Engine thread.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/engine/engine.h"
#include "common/transfer/link.h"
#include "common/transfer/ticket.h"

namespace baton::prefill_service {

// Payload of one test, but at least a block.
inline constexpr int64_t kMaxTestBytes = int64_t{64} << 20;

// Ships what the ticket covers. INVALID_ARGUMENT: the ticket covers nothing, or too much.
// RESOURCE_EXHAUSTED: no block is free.
absl::Status ShipTest(const transfer::Ticket& ticket, engine::Engine& engine, transfer::LinkSender& link,
                      int64_t max_chunk_bytes, const std::function<void(v1::KvChunk)>& send);

}  // namespace baton::prefill_service
