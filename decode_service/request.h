// A router's request to a decode worker, checked and turned into a Sequence that lacks only its way back to
// the caller (send, finish, congested) and its deadline. Pure; any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/decode.pb.h"
#include "decode_service/sequence.h"
#include "engine/engine.h"
#include "text/output/marker_table.h"
#include "text/tokenizer.h"

namespace baton::decode_service {

// INVALID_ARGUMENT names the field; FAILED_PRECONDITION names what differs between fingerprints. Takes no
// blocks yet. `engine` outlives the sequence. Without `markers`, a request for typed parts is refused.
absl::StatusOr<std::unique_ptr<Sequence>> ParseRequest(
    const fleet::v1::DecodeRequest& request, engine::Engine& engine,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const std::shared_ptr<const output::MarkerTables>& markers = nullptr);

}  // namespace baton::decode_service
