// Errors of the router as HTTP has them. Pure functions, any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// 400 INVALID_ARGUMENT and FAILED_PRECONDITION, 401, 403, 404, 429 RESOURCE_EXHAUSTED, 499 CANCELLED, 501,
// 503 UNAVAILABLE, 504 DEADLINE_EXCEEDED; else 500.
int HttpStatusOf(absl::StatusCode code);

// Why an INVALID_ARGUMENT is one: the field that its message begins with ("stop.max_tokens: ..."); empty: it
// names none.
std::string FieldOf(const absl::Status& status);
// The conversation, or the prompt, does not fit the model's context.
bool ExceedsContext(const absl::Status& status);

// {"error": {"message", "type", "param", "code"}}.
Json OpenAiError(const absl::Status& status);
// {"type": "error", "error": {"type", "message"}}.
Json AnthropicError(const absl::Status& status);

// Seconds for Retry-After, at least 1, and milliseconds for retry-after-ms; none: the error names no delay.
struct RetryAfter {
  int64_t seconds;
  int64_t milliseconds;
};
std::optional<RetryAfter> RetryAfterOf(const absl::Status& status);

}  // namespace baton::gateway
