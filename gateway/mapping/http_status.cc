#include "gateway/mapping/http_status.h"

#include <algorithm>

#include "common/rpc/status.h"

namespace baton::gateway {
namespace {

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// With the words by which clients (Anthropic's, LangChain, LiteLLM) know that they have to shorten a prompt.
std::string MessageToClients(const absl::Status& status) {
  return (ExceedsContext(status) ? "prompt is too long: " : "") + Message(status);
}

const char* OpenAiType(int http) {
  switch (http) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return http < 500 ? "invalid_request_error" : "server_error";
  }
}

Json OpenAiCode(const absl::Status& status, int http) {
  if (ExceedsContext(status)) return "context_length_exceeded";
  switch (http) {
    case 401:
      return "invalid_api_key";
    case 404:
      return "model_not_found";
    case 429:
      return "rate_limit_exceeded";
    default:
      return nullptr;
  }
}

const char* AnthropicType(int http) {
  switch (http) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 529:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http < 500 ? "invalid_request_error" : "api_error";
  }
}

Json AnthropicBody(const char* type, const std::string& message, const std::string& request_id) {
  Json body = {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
  if (!request_id.empty()) body["request_id"] = request_id;
  return body;
}

}  // namespace

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

int HttpStatusOf(const absl::Status& status) {
  // The request asks for a thing that this model can't do: with 501 clients would try again. Another
  // UNIMPLEMENTED is an older router's.
  return rpc::HasReason(status, v1::REASON_NOT_SUPPORTED) ? 400 : HttpStatusOf(status.code());
}

int AnthropicStatusOf(const absl::Status& status) {
  return absl::IsUnavailable(status) ? 529 : HttpStatusOf(status);
}

std::string FieldOf(const absl::Status& status) {
  const std::string message = Message(status);
  const size_t end = message.find(": ");
  if (end == std::string::npos || HttpStatusOf(status) != 400) return "";
  const bool field = std::all_of(message.begin(), message.begin() + static_cast<ptrdiff_t>(end), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' || c == ']';
  });
  return field ? message.substr(0, end) : "";
}

bool ExceedsContext(const absl::Status& status) {
  return rpc::HasReason(status, v1::REASON_CONTEXT_LENGTH_EXCEEDED);
}

Json OpenAiError(const absl::Status& status) {
  const int http = HttpStatusOf(status);
  const std::string field = FieldOf(status);
  return {{"error",
           {{"message", MessageToClients(status)},
            {"type", OpenAiType(http)},
            {"param", field.empty() ? Json(nullptr) : Json(field)},
            {"code", OpenAiCode(status, http)}}}};
}

Json OpenAiRefusal(int http, const std::string& why) {
  return {{"error", {{"message", why}, {"type", OpenAiType(http)}, {"param", nullptr}, {"code", nullptr}}}};
}

Json AnthropicRefusal(int http, const std::string& why, const std::string& request_id) {
  return AnthropicBody(AnthropicType(http), why, request_id);
}

Json AnthropicError(const absl::Status& status, const std::string& request_id) {
  return AnthropicBody(AnthropicType(AnthropicStatusOf(status)), MessageToClients(status), request_id);
}

std::optional<RetryAfter> RetryAfterOf(const absl::Status& status) {
  const auto delay = rpc::RetryDelay(status);
  if (!delay.has_value()) return std::nullopt;
  const int64_t milliseconds =
      std::max<int64_t>(1, absl::ToInt64Milliseconds(absl::Ceil(*delay, absl::Milliseconds(1))));
  return RetryAfter{.seconds = (milliseconds + 999) / 1000, .milliseconds = milliseconds};
}

}  // namespace baton::gateway
