// Limits on what strangers can make a gRPC server do before a key is checked. The
// acceptor limits connections, the frame guard what gRPC's parser does not; the rest is here.
#pragma once

#include <grpcpp/server_builder.h>

#include "absl/time/time.h"

namespace baton::rpc {

// `opening`: from a connection to the client's SETTINGS, TLS included. Compressed messages are refused and
// never decompressed, calls at a time and metadata are limited, and gRPC ends calls when the memory for all
// of them reaches its limit.
void LimitStrangers(grpc::ServerBuilder& builder, absl::Duration opening);

}  // namespace baton::rpc
