// A decode worker's request to a prefill worker, checked and turned into a Job that lacks only its way back
// (send, finish, congested). Pure; any thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/prefill.pb.h"
#include "engine/engine.h"
#include "prefill_service/scheduler.h"

namespace baton::prefill_service {

// FAILED_PRECONDITION names what differs between the fingerprints, or the links.
absl::Status CheckPair(const fleet::v1::Fingerprint& theirs, const engine::Engine& engine,
                       std::string_view link);
// INVALID_ARGUMENT names the field; FAILED_PRECONDITION as above.
absl::StatusOr<Job> ParseRequest(const fleet::v1::PrefillRequest& request, const engine::Engine& engine,
                                 std::string_view link = "host");

}  // namespace baton::prefill_service
