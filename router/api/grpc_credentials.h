// Credentials of the caller of a gRPC method. Pure; any thread.
#pragma once

#include <grpcpp/server_context.h>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

// The API key in the metadata (`authorization: Bearer KEY`, or `x-api-key: KEY`) and the names in the
// client's certificate. The key refers to the context.
Credentials CredentialsOf(const grpc::ServerContextBase& context);

// When the call is to end at the latest, on our clock: a little before the client's deadline, so that its
// end, which tells what it used, is there by then. Infinite without one, or with one that is more than a year
// away.
absl::Time DeadlineOf(const grpc::ServerContextBase& context, const Clock& clock);

}  // namespace baton::router
