// What a gRPC server lets strangers, who only reach its port, make it do before anybody asks for a key. The
// acceptor limits connections, the frame guard what gRPC's parser does not; the rest is here.
#pragma once

#include <grpcpp/server_builder.h>

#include "absl/time/time.h"

namespace baton::rpc {

// `opening`: from a connection to the client's SETTINGS, TLS included. Compressed messages are refused and
// never unpacked, calls at a time and metadata are limited, and gRPC gives calls up rather than let what it
// holds for all of them grow on.
void LimitStrangers(grpc::ServerBuilder& builder, absl::Duration opening);

}  // namespace baton::rpc
