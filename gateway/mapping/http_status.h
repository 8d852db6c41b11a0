// Errors of the router as HTTP has them. Pure functions, any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// 400 INVALID_ARGUMENT, FAILED_PRECONDITION and OUT_OF_RANGE, 401, 403, 404, 429 RESOURCE_EXHAUSTED, 499
// CANCELLED, 501, 503 UNAVAILABLE, 504 DEADLINE_EXCEEDED; else 500.
int HttpStatusOf(absl::StatusCode code);
// The same, but 400 where the model can't do what is asked for (NOT_SUPPORTED).
int HttpStatusOf(const absl::Status& status);
// That, but 529 for UNAVAILABLE, by which Anthropic's clients know that a service has too much to do.
int AnthropicStatusOf(const absl::Status& status);

// Why an error is the request's: the field that its message begins with ("stop.max_tokens: ..."); empty: it
// names none.
std::string FieldOf(const absl::Status& status);
// The conversation, or the prompt, does not fit the model's context.
bool ExceedsContext(const absl::Status& status);

// {"error": {"message", "type", "param", "code"}}.
Json OpenAiError(const absl::Status& status);
// {"type": "error", "error": {"type", "message"}, "request_id"}; without the last if it is empty.
Json AnthropicError(const absl::Status& status, const std::string& request_id);
// The same of what is no request of the API: no such path, not HTTP, too long.
Json OpenAiRefusal(int http, const std::string& why);
Json AnthropicRefusal(int http, const std::string& why, const std::string& request_id);

// Seconds for Retry-After, at least 1, and milliseconds for retry-after-ms; none: the error names no delay.
struct RetryAfter {
  int64_t seconds;
  int64_t milliseconds;
};
std::optional<RetryAfter> RetryAfterOf(const absl::Status& status);

}  // namespace baton::gateway
