// Limits on what strangers can make a gRPC server do before a key is checked. The
// acceptor limits connections, the frame guard what gRPC's parser does not; the rest is here.
#pragma once

#include <grpcpp/server_builder.h>

#include <cstddef>

#include "absl/time/time.h"

namespace baton::rpc {

// Metadata that gRPC takes of a call. It ends all calls of a connection over more, which may be those of many
// clients behind one proxy: Envoy takes 60 KiB of each, by default.
inline constexpr size_t kTakenMetadataBytes = 64 << 10;

// `opening`: from a connection to the client's SETTINGS, TLS included. gRPC never decompresses a message:
// compressed ones are refused, or with `gzip` those of that encoding are handed on as they came. Calls at a
// time and metadata (kTakenMetadataBytes) are limited, and gRPC ends calls when the memory for all of them
// reaches its limit.
void LimitStrangers(grpc::ServerBuilder& builder, absl::Duration opening, bool gzip = false);

}  // namespace baton::rpc
