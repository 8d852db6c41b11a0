#include "router/api/explained.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "common/base/quote.h"
#include "common/rpc/status.h"

namespace baton::router {
namespace {

// More than that of what is wrong with a field is not said twice: trailers have a bound of 8 KiB at clients.
constexpr size_t kMaxDescription = 256;

// The request is at fault, or what it asks for: a field may be named.
bool IsOfTheRequest(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

// The path that the message begins with; empty: it begins with none.
std::string_view PathIn(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == 0 || end == std::string_view::npos || message.front() < 'a' || message.front() > 'z') return "";
  const std::string_view path = message.substr(0, end);
  const bool is_path = std::all_of(path.begin(), path.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' || c == ']';
  });
  return is_path ? path : "";
}

v1::Reason ReasonFor(absl::StatusCode code, bool has_field) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return has_field ? v1::REASON_INVALID_FIELD : v1::REASON_INVALID_REQUEST;
    case absl::StatusCode::kNotFound:
      return v1::REASON_MODEL_NOT_FOUND;
    case absl::StatusCode::kUnauthenticated:
      return v1::REASON_KEY_MISSING;
    case absl::StatusCode::kPermissionDenied:
      return v1::REASON_NOT_ALLOWED;
    case absl::StatusCode::kUnimplemented:
      return v1::REASON_NOT_SUPPORTED;
    case absl::StatusCode::kResourceExhausted:
      return v1::REASON_OVERLOADED;
    case absl::StatusCode::kFailedPrecondition:
      return v1::REASON_FLEET_SETUP;
    case absl::StatusCode::kUnavailable:
      return v1::REASON_WORKER_LOST;
    case absl::StatusCode::kAborted:
      return v1::REASON_CLIENT_STALLED;
    case absl::StatusCode::kCancelled:
      return v1::REASON_CLIENT_GONE;
    case absl::StatusCode::kDeadlineExceeded:
      return v1::REASON_DEADLINE_PASSED;
    default:
      return v1::REASON_INTERNAL;
  }
}

}  // namespace

absl::Status Explained(absl::Status status) {
  if (status.ok()) return status;
  const std::string message(status.message());
  const std::string_view path = IsOfTheRequest(status.code()) ? PathIn(message) : "";
  if (!path.empty() && rpc::FieldOf(status).empty()) {
    const std::string_view why = std::string_view(message).substr(path.size() + 2);
    status =
        rpc::WithField(std::move(status), path,
                       why.size() <= kMaxDescription ? std::string(why) : Shortened(why, kMaxDescription));
  }
  if (rpc::ReasonOf(status).empty()) {
    const v1::Reason reason = ReasonFor(status.code(), !path.empty());
    status = rpc::WithReason(std::move(status), reason);
  }
  return status;
}

}  // namespace baton::router
