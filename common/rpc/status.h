// Errors across the wire: absl::Status inside, grpc::Status at the socket. Codes are the same canonical ones;
// what programs act on travels as messages of google.rpc (AIP-193), which are payloads inside. Pure
// functions, any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/errors.pb.h"

namespace baton::rpc {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// RESOURCE_EXHAUSTED (or what `status` is) with "try again after": clients that know RetryInfo wait that
// long.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// ErrorInfo. What it had goes.
absl::Status WithReason(absl::Status status, v1::Reason reason,
                        const std::map<std::string, std::string>& metadata = {});
// As ErrorInfo writes it: "CONTEXT_LENGTH_EXCEEDED". Empty: it has none.
std::string ReasonOf(const absl::Status& status);
bool HasReason(const absl::Status& status, v1::Reason reason);
// Empty: it has none of that name.
std::string ReasonMetadata(const absl::Status& status, const std::string& name);

// BadRequest: the field that is wrong, a path in the request, and what is wrong with it.
absl::Status WithField(absl::Status status, std::string_view field, std::string_view description);
// Empty: it has none.
std::string FieldOf(const absl::Status& status);

// QuotaFailure: whose limit it is ("tenant"), and which.
absl::Status WithQuota(absl::Status status, std::string_view subject, std::string_view description);
// The subject; empty: it has none.
std::string QuotaOf(const absl::Status& status);

// UNAVAILABLE, which a process says to every call while it loads what it will serve. Its ErrorInfo is not one
// of clients' (v1::Reason), for only members of the fleet call it.
absl::Status StartingError();
bool IsStarting(const absl::Status& status);

// RequestInfo.
absl::Status WithRequestId(absl::Status status, std::string_view id);
std::string RequestIdOf(const absl::Status& status);

}  // namespace baton::rpc
