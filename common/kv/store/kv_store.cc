#include "common/kv/store/kv_store.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace baton::kv {
namespace {

// Below this a huge page would be mostly empty.
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

}  // namespace

void KvStore::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

absl::StatusOr<KvStore> KvStore::Create(const KvLayout& layout, int64_t blocks) {
  if (layout.block_bytes() <= 0 || blocks <= 0) {
    return absl::InvalidArgumentError(
        fmt::format("a KV store needs at least one block of at least one byte, not {} of {}", blocks,
                    layout.block_bytes()));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(blocks, layout.block_bytes(), &bytes)) {
    return absl::ResourceExhaustedError(fmt::format(
        "no memory for {} KV blocks of {} bytes: the sum overflows", blocks, layout.block_bytes()));
  }
  // Without MAP_NORESERVE: where the kernel accounts for memory, a pool that can't fit is refused here and
  // not killed in the middle of a request.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        fmt::format("no memory for {} KV blocks of {} bytes, {} bytes in all: {}", blocks,
                    layout.block_bytes(), bytes, std::strerror(errno)));
  }
  // Attention walks the pool at random; huge pages spare it the page walks. A kernel without them says so,
  // and all the same works.
  if (bytes >= kHugePageBytes) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return KvStore(layout, blocks, Mapping(static_cast<std::byte*>(memory), Unmap{static_cast<size_t>(bytes)}));
}

}  // namespace baton::kv
