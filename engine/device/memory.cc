#include "engine/device/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace baton::device {

absl::StatusOr<std::unique_ptr<Outbound>> Memory::MakeOutbound(int64_t) {
  return absl::UnimplementedError("nothing leaves " + name() + " beside its operations");
}

absl::Status Memory::UploadPieces(const std::byte* host, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (absl::Status copied = Upload(host + piece.at, piece.here, piece.bytes); !copied.ok()) return copied;
  }
  return absl::OkStatus();
}

namespace {

// Below this a huge page would be mostly empty.
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

class HostMemoryImpl final : public Memory {
 public:
  std::string name() const override { return "host memory"; }
  bool host() const override { return true; }

  absl::StatusOr<Buffer> Allocate(int64_t bytes) override {
    // Without MAP_NORESERVE: where the kernel accounts for memory, what can't fit is refused here and nobody
    // is killed for it later.
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          fmt::format("no {} bytes of memory: {}", bytes, std::strerror(errno)));
    }
    // Attention walks KV at random; huge pages spare it the page walks. A kernel without them says so, and
    // all the same works.
    if (bytes >= kHugePageBytes) (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return Buffer(static_cast<std::byte*>(memory), Release{this, bytes});
  }

  absl::Status Upload(const void* host, std::byte* here, int64_t bytes) override {
    std::memcpy(here, host, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Download(const std::byte* here, void* host, int64_t bytes) override {
    std::memcpy(host, here, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

 private:
  void Free(std::byte* data, int64_t bytes) override { munmap(data, static_cast<size_t>(bytes)); }
};

}  // namespace

Memory& HostMemory() {
  // Stateless: a name for what every process has. Never destroyed, as buffers of static objects may outlive
  // any static of ours.
  static Memory& memory = *new HostMemoryImpl;
  return memory;
}

}  // namespace baton::device
