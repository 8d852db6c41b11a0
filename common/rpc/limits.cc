#include "common/rpc/limits.h"

#include <grpc/compression.h>
#include <grpcpp/resource_quota.h>

#include "common/rpc/frame_guard.h"

namespace baton::rpc {
namespace {

// Memory of gRPC for messages in flight and calls: 32 of the largest messages. Beyond it, it ends calls of
// any client.
constexpr size_t kMemory = size_t{512} << 20;

}  // namespace

void LimitStrangers(grpc::ServerBuilder& builder, absl::Duration opening, bool gzip) {
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(opening)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, FrameGuard::kMaxCalls);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(kTakenMetadataBytes));
  // gRPC inflates a message before it looks at its size. Without the filter that does so, the call is refused
  // by the name of its encoding, and a message that comes all the same stays as it is.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // An answer is compressed only if a service asks for it, and none does.
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                             1 << GRPC_COMPRESS_NONE | (gzip ? 1 << GRPC_COMPRESS_GZIP : 0));
  builder.SetResourceQuota(grpc::ResourceQuota("strangers").Resize(kMemory));
}

}  // namespace baton::rpc
