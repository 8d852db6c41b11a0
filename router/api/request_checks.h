// Checks of whole requests: each field by itself (validation.h), and those that go together. Cheap: nothing
// is rendered or tokenized. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "router/api/served_model.h"

namespace baton::router {

// INVALID_ARGUMENT names the field. max_answer_bytes: of an answer that goes out in one message; 0: it is a
// stream. counted: only the prompt is asked for, which may be longer than the context (prompt.h).
absl::Status CheckRequest(const ServedModel& model, const v1::GenerateRequest& request,
                          uint32_t max_answer_bytes, bool counted);
absl::Status CheckRequest(const ServedModel& model, const v1::ChatRequest& request, uint32_t max_answer_bytes,
                          bool counted);

// An answer that goes on with the last message has no form of its own from its first token on. Prompts that
// are counted have no answer.
absl::Status CheckContinued(const ServedModel& model, const v1::ChatRequest& request);

// The answers of so many tokens do not fit one message; `most` do.
absl::Status TooLargeForOneMessage(int choices, uint32_t max_tokens, uint32_t max_answer_bytes, int64_t most);

}  // namespace baton::router
