// HostLink: the payload travels inline in the chunk message, on the same gRPC stream: it works wherever gRPC
// does, TLS included, and has that stream's order and flow control. Stateless.
#pragma once

#include "common/transfer/link.h"

namespace baton::transfer {

class HostLinkSender final : public LinkSender {
 public:
  std::string_view name() const override { return "host"; }
  absl::Status Ship(ConstPieces pieces, v1::KvChunk& chunk) override;
};

class HostLinkReceiver final : public LinkReceiver {
 public:
  std::string_view name() const override { return "host"; }
  void Receive(const v1::KvChunk& chunk, Pieces pieces, Done done) override;
};

}  // namespace baton::transfer
