// Payload: what a link does with bytes where KV lies: pieces of blocks into one run of staging memory with a
// checksum behind it, and back. One level deep: HostPayload here, CudaPayload on GPUs. Pack and Unpack are
// the engine thread's, ordered as downloads and uploads are, and wait for nothing; Packed and Unpacked are
// the link's thread's too. All of them but Stage and TrailerBytes are called under the link's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/memory.h"
#include "transfer/link.h"

namespace baton::transfer {

class Payload {
 public:
  virtual ~Payload() = default;
  // The calling thread, which is the link's, is about to ask how packs and unpacks go on, and to use
  // libraries that look for its GPU.
  virtual void Enter() {}
  // The link's staging memory, taken when the link opens and given back when it has closed: never in between,
  // because both may wait for all that runs on the device. Nothing of it is written before somebody packs or
  // receives into it.
  virtual absl::StatusOr<device::Memory::Buffer> Stage(int64_t bytes) = 0;
  // Bytes behind `bytes` of payload that its checksums take.
  virtual int64_t TrailerBytes(int64_t bytes) const = 0;
  // Copies the pieces to `staging` and writes the trailer. May go on after it returns: until then the pieces
  // are not written. Numbers of packs grow, and packs end in their order.
  virtual uint64_t Pack(ConstPieces pieces, std::byte* staging) = 0;
  // The pack of this number, and so all before it, has ended. Never waits.
  virtual bool Packed(uint64_t number) = 0;
  // Checks `bytes` of payload against the trailer, then copies them to the pieces. May go on after it
  // returns: until then staging and pieces stay. Numbers as of packs.
  virtual uint64_t Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) = 0;
  // How the unpack of this number ended; nothing while it goes on. DATA_LOSS: nothing was copied. Asked for
  // one number after the other, until it has ended. Never waits.
  virtual std::optional<absl::Status> Unpacked(uint64_t number) = 0;
};

// In host memory; the trailer is a CRC32C.
std::unique_ptr<Payload> MakeHostPayload();

}  // namespace baton::transfer
