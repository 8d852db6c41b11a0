// gRPC's own messages, in the process's log: a client that answered no ping is named at level warn, with what
// became of it; the rest, which strangers can cause at will, is at level debug.
#pragma once

namespace baton::rpc {

// From now on; for the process.
void RouteGrpcLog();

}  // namespace baton::rpc
