// Payload: what a link does with bytes where KV lies: pieces of blocks into one run of staging memory with a
// checksum behind it, and back. One level deep: HostPayload here, CudaPayload on GPUs. Pack and Unpack are
// the engine thread's, in the order of its kernels; OrderAfter is the link thread's.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "common/device/memory.h"
#include "common/transfer/link.h"

namespace baton::transfer {

class Payload {
 public:
  virtual ~Payload() = default;
  virtual device::Memory& memory() = 0;
  // Bytes behind `bytes` of payload that its checksums take.
  virtual int64_t TrailerBytes(int64_t bytes) const = 0;
  // Copies the pieces to `staging` and writes the trailer. May go on after it returns.
  virtual void Pack(ConstPieces pieces, std::byte* staging) = 0;
  // What the link puts on its stream from now on comes after all that Pack has begun.
  virtual void OrderAfter() = 0;
  // Checks `bytes` of payload against the trailer, then copies them to the pieces. DATA_LOSS: nothing was
  // copied.
  virtual absl::Status Unpack(const std::byte* staging, int64_t bytes, Pieces pieces) = 0;
};

// In host memory; the trailer is a CRC32C.
std::unique_ptr<Payload> MakeHostPayload();

}  // namespace baton::transfer
