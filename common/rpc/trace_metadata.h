// The trace of a call, as it stands in gRPC's metadata (telemetry/trace_context.h). Pure; any thread.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include "common/telemetry/trace_context.h"

namespace baton::rpc {

// The caller's trace; not valid if there is none, or it breaks the rules.
telemetry::TraceContext TraceOf(const grpc::ServerContextBase& context);

// Says so to the server that is called. Nothing if there is no trace.
void AddTrace(const telemetry::TraceContext& trace, grpc::ClientContext* context);

}  // namespace baton::rpc
