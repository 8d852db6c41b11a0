// What the caller of a gRPC method shows of itself. Pure; any thread.
#pragma once

#include <grpcpp/server_context.h>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

// The API key in the metadata (`authorization: Bearer KEY`, or `x-api-key: KEY`) and the names in the
// client's certificate. The key refers to the context.
Credentials CredentialsOf(const grpc::ServerContextBase& context);

// Its deadline, on our clock.
absl::Time DeadlineOf(const grpc::ServerContextBase& context, const Clock& clock);

}  // namespace baton::router
