// The form of an answer in the spellings of all servers: OpenAI's `response_format`, also as llama.cpp has
// it; vLLM's `structured_outputs` and its older `guided_*`; llama.cpp's and SGLang's `json_schema` and
// `regex` at the top. A plain function, any thread.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// The constraint, in which another field may have been read, stays as it is if none is asked for here.
// INVALID_ARGUMENT names the field: a second one, or one in a notation that is not read (GBNF).
absl::Status ReadConstraint(JsonObject& body, v1::Constraint* constraint);

}  // namespace baton::gateway
