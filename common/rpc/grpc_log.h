// gRPC's and Protobuf's own messages, in the process's log: a client that answered no ping is named at level
// warn, with the consequence; the rest, which strangers can cause at will, is at level debug.
#pragma once

namespace baton::rpc {

// Takes over both logs for the whole process.
void RouteGrpcLog();

}  // namespace baton::rpc
