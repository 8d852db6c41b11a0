// HostLink: the payload travels inline in the chunk message, on the same gRPC stream: it works wherever gRPC
// does, TLS included, and has that stream's order and flow control. KV on a GPU takes the way through host
// memory. Stateless.
#pragma once

#include "common/device/memory.h"
#include "common/transfer/link.h"

namespace baton::transfer {

class HostLinkSender final : public LinkSender {
 public:
  // `memory`: where the pieces lie; it outlives the link.
  explicit HostLinkSender(device::Memory& memory = device::HostMemory()) : memory_(&memory) {}
  std::string_view name() const override { return "host"; }
  absl::Status Ship(ConstPieces pieces, v1::KvChunk& chunk) override;

 private:
  device::Memory* memory_;
};

class HostLinkReceiver final : public LinkReceiver {
 public:
  explicit HostLinkReceiver(device::Memory& memory = device::HostMemory()) : memory_(&memory) {}
  std::string_view name() const override { return "host"; }
  void Receive(const v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) override;

 private:
  device::Memory* memory_;
};

}  // namespace baton::transfer
