// What a decode worker asks of a prefill worker, checked and turned into a Job that lacks only its way back
// (send, finish, congested). Pure; any thread.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/prefill.pb.h"
#include "common/engine/engine.h"
#include "prefill_service/scheduler.h"

namespace baton::prefill_service {

// INVALID_ARGUMENT names the field; FAILED_PRECONDITION names what differs between fingerprints.
absl::StatusOr<Job> ParseRequest(const v1::PrefillRequest& request, const engine::Engine& engine);

}  // namespace baton::prefill_service
