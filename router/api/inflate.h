// Gzip (RFC 1952) of requests. The bytes come here as they were sent, because gRPC's own filter inflates a
// message before it looks at its size (common/rpc/limits.cc). Nothing is inflated beyond the size that the
// data state at their end, and that size is looked at first. Pure functions, any thread.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::router {

// A protobuf message never begins like gzip: 0x1f is a tag of the wire type 7, which does not exist.
bool IsGzip(std::string_view bytes);

// The size that `gzip` states for what it holds, which may be a lie, and is a remainder beyond 4 GiB; 0 of
// what is too short to state any.
size_t StatedBytes(std::string_view gzip);

// True if `gzip` bytes can hold as many as they state. Those that can't are corrupt.
bool CanHold(size_t gzip, size_t stated);

// INVALID_ARGUMENT if the data are corrupt, cut short, or not one member of as many bytes as are stated.
absl::StatusOr<std::string> Inflate(std::string_view gzip);

// A request as it is counted by those who bound what is held: its bytes once they are inflated, as far as
// they can be of so many compressed ones, and are taken at all; otherwise those that came.
size_t RequestBytes(const grpc::ByteBuffer& bytes);

}  // namespace baton::router
