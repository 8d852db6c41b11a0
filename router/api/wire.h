// Messages in and out of gRPC's byte buffers. The service takes its requests raw, because gRPC's own parser
// answers a message that it can't read with a code and no words; here the answer names the field. Pure
// functions, any thread.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "common/rpc/channel.h"

namespace baton::router {

// `bytes` may be compressed (inflate.h). INVALID_ARGUMENT if they are no such message: which string field is
// not UTF-8 and at which byte, or that the message is malformed, or of more than `most` bytes once it is
// inflated.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message,
                          size_t most = rpc::kMaxMessageBytes);
// The most bytes of a message that is parsed on gRPC's threads, whatever it inflates to.
inline constexpr size_t kMaxShortMessage = 1 << 20;

grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message);

// Offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7).
std::optional<size_t> FirstInvalidUtf8(std::string_view text);

}  // namespace baton::router
