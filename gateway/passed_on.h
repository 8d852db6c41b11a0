// Passing on: what of an HTTP request goes on to a router as it is: keys, traces, names. Pure functions, any
// thread.
#pragma once

#include <grpcpp/client_context.h>

#include <string>

#include "gateway/http/exchange.h"

namespace baton::gateway {

inline constexpr char kIdempotencyHeader[] = "idempotency-key";
// The build that must answer, in a request; in an answer, the one that does.
inline constexpr char kBuildHeader[] = "x-baton-build";

// Why a request's key, its idempotency key or its build can't be passed on: it is too long for any. Empty: it
// can.
std::string WhyNotPassedOn(const http::Request& request);
// The metadata of a call: the client's key, trace context and name for the request. A key that is too long
// stays away, as do the others.
void PassOn(const http::Request& request, grpc::ClientContext* context);

}  // namespace baton::gateway
