// StatusOf: a refusal of admission as the client hears it. Pure function, any thread.
#pragma once

#include "absl/status/status.h"
#include "router/admission/refusal.h"

namespace baton::router {

// RESOURCE_EXHAUSTED with a RetryInfo, or FAILED_PRECONDITION if it can never pass; its reason; and with a
// limit that is used up a QuotaFailure that says whose.
absl::Status StatusOf(const admission::Refusal& refusal);

}  // namespace baton::router
