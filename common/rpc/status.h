// Errors across the wire: absl::Status inside, grpc::Status at the socket. Codes are the same canonical ones;
// a retry delay travels as google.rpc.RetryInfo. Pure functions, any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::rpc {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// RESOURCE_EXHAUSTED (or what `status` is) with "try again after": clients that know RetryInfo wait that
// long.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// The reason of an ErrorInfo, for programs that act on it.
inline constexpr char kContextLengthExceeded[] = "CONTEXT_LENGTH_EXCEEDED";  // a prompt, or with its answer
inline constexpr char kRequestTooLarge[] = "REQUEST_TOO_LARGE";              // in bytes
inline constexpr char kAnswerTooLarge[] = "ANSWER_TOO_LARGE";                // in bytes, as it was asked for
inline constexpr char kRouterDraining[] = "ROUTER_DRAINING";                 // another router may answer
absl::Status WithReason(absl::Status status, const std::string& reason);
// Empty: it has none.
std::string ReasonOf(const absl::Status& status);

}  // namespace baton::rpc
