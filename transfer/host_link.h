// HostLink: the payload travels inline in the chunk message, on the same gRPC stream: it works wherever gRPC
// does, TLS included, and has that stream's order and flow control. Here for KV in host memory, stateless;
// for KV on a device see staged_host_link.h. To the other end the two are the same.
#pragma once

#include "transfer/link.h"

namespace baton::transfer {

class HostLinkSender final : public LinkSender {
 public:
  std::string_view name() const override { return "host"; }
  absl::Status Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) override;
};

class HostLinkReceiver final : public LinkReceiver {
 public:
  std::string_view name() const override { return "host"; }
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) override;
};

// DATA_LOSS: the chunk does not carry `bytes` bytes; its payload is not what its checksum says.
absl::Status CheckPayloadSize(const fleet::v1::KvChunk& chunk, size_t bytes);
absl::Status CheckPayloadSum(const fleet::v1::KvChunk& chunk);

}  // namespace baton::transfer
