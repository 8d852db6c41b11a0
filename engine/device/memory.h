// Memory: where an engine's bulk memory comes from: the host, or one GPU. Weights, activations and KV blocks
// are carved out of it; only kernels that run on the same device may look inside, and everybody else goes
// through Upload and Download. One level deep: HostMemory here, CudaMemory in device/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/outbound.h"

namespace baton::device {

class Memory {
 public:
  // Gives the bytes back to where they are from.
  struct Release {
    Memory* memory = nullptr;
    int64_t bytes = 0;
    void operator()(std::byte* data) const { memory->Free(data, bytes); }
  };
  using Buffer = std::unique_ptr<std::byte[], Release>;

  virtual ~Memory() = default;

  // "host memory", "memory of GPU 0": for messages.
  virtual std::string name() const = 0;
  // True if the host may access it directly.
  virtual bool host() const = 0;
  // At least one byte, zero at first, aligned to 256 bytes. RESOURCE_EXHAUSTED says how much was asked for
  // and how much there is. The memory outlives its buffers. A fence.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes) = 0;
  // Bytes that could be had now; negative if that is unknown.
  virtual int64_t available() const { return -1; }
  // Copies between the host and this memory. On return the bytes are in place for all operations that are
  // issued afterwards. INTERNAL: the device failed, now or in an earlier operation.
  // A download is ordered after all operations that were issued before it. An upload is ordered only after
  // those before the last fence, and does not wait for a step in flight: operations issued since the fence
  // must not read or write these bytes. A KV block that was released after its last step was finished is
  // safe.
  virtual absl::Status Upload(const void* host, std::byte* here, int64_t bytes) = 0;
  virtual absl::Status Download(const std::byte* here, void* host, int64_t bytes) = 0;
  // Uploads that are asked for from now on come after the operations that were issued before.
  virtual void Fence() {}
  // Marks what was issued so far, and returns the mark's number; the first is 1. Owner thread of the kernels
  // that work in this memory.
  virtual int64_t Mark() { return 0; }
  // Announces that bytes that leave from now on were written before `mark`, one of the last kMarks. Owner
  // thread.
  virtual void Announce(int64_t mark) {}
  // The mark that was announced last; 0 if none was. Any thread.
  virtual int64_t announced() const { return 0; }
  static constexpr int64_t kMarks = 512;
  // Makes a path for bytes from here to the host beside the operations, `bytes` in flight at most. The memory
  // outlives it. RESOURCE_EXHAUSTED: no room for them. UNIMPLEMENTED: this memory has none, as the host looks
  // into it.
  virtual absl::StatusOr<std::unique_ptr<Outbound>> MakeOutbound(int64_t bytes);
  struct Piece {
    std::byte* here = nullptr;
    int64_t at = 0;  // in the bytes of the host
    int64_t bytes = 0;
  };
  // Uploads the pieces, together: as Upload, on any thread.
  virtual absl::Status UploadPieces(const std::byte* host, std::span<const Piece> pieces);

 private:
  virtual void Free(std::byte* data, int64_t bytes) = 0;
};

// The process's own memory: resident page by page as it is written, in huge pages where there are any. Any
// thread; lives as long as the process.
Memory& HostMemory();

}  // namespace baton::device
