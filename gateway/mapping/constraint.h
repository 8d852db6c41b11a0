// The form of an answer in the spellings of all servers: OpenAI's `response_format`, also as llama.cpp has
// it; vLLM's `structured_outputs` and its older `guided_*`; llama.cpp's and SGLang's `json_schema` and
// `regex` at the top. Plain functions, any thread.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "common/base/status.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// The constraint, in which another field may have been read, stays as it is if none is asked for here.
// INVALID_ARGUMENT names the field: a second one, or one in a notation that is not read (GBNF).
absl::Status ReadForm(JsonObject& body, v1::Constraint* constraint);

// The same for a request, v1::ChatRequest or v1::GenerateRequest.
template <typename Request>
absl::Status ReadConstraint(JsonObject& body, Request* request) {
  v1::Constraint constraint = request->constraint();
  BATON_RETURN_IF_ERROR(ReadForm(body, &constraint));
  if (constraint.kind_case() != v1::Constraint::KIND_NOT_SET) *request->mutable_constraint() = constraint;
  return absl::OkStatus();
}

}  // namespace baton::gateway
