// What an answer must look like, in the fields of OpenAI's bodies: `response_format`, vLLM's
// `structured_outputs` and its older `guided_*`. A plain function, any thread.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// Of chat and of text completions; the constraint stays unset if none is asked for. INVALID_ARGUMENT names
// the field.
absl::Status ReadConstraint(JsonObject& body, v1::Constraint* constraint);

}  // namespace baton::gateway
