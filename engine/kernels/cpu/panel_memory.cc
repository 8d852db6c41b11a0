#include "engine/kernels/cpu/panel_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

namespace baton::kernels::cpu {
namespace {

constexpr size_t kPieceAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunkBytes = size_t{16} << 20;

size_t RoundedUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// On pages of 2 MiB, if the system gives any: a refusal costs nothing but speed. Null: there is no memory.
std::byte* Pages(size_t bytes) {
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kHugePage, bytes));
  if (memory != nullptr) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

// Every piece that was taken from it keeps it.
class PanelMemory::Chunk {
 public:
  explicit Chunk(std::byte* memory) : memory_(memory, &std::free) { free_.emplace(0, kChunkBytes); }

  // The first free place that is large enough; null: there is none.
  std::byte* Take(size_t bytes) {
    absl::MutexLock lock(&mutex_);
    for (auto place = free_.begin(); place != free_.end(); ++place) {
      const auto [at, size] = *place;
      if (size < bytes) continue;
      free_.erase(place);
      if (size > bytes) free_.emplace(at + bytes, size - bytes);
      return memory_.get() + at;
    }
    return nullptr;
  }
  void GiveBack(std::byte* memory, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    size_t at = static_cast<size_t>(memory - memory_.get());
    auto next = free_.lower_bound(at);
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == at) {
        at = before->first;
        bytes += before->second;
        free_.erase(before);
      }
    }
    if (next != free_.end() && at + bytes == next->first) {
      bytes += next->second;
      free_.erase(next);
    }
    free_.emplace(at, bytes);
  }

 private:
  const std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  absl::Mutex mutex_;
  std::map<size_t, size_t> free_ ABSL_GUARDED_BY(mutex_);  // sizes, by where they begin; none touches another
};

std::shared_ptr<std::byte> PanelMemory::Take(size_t bytes) {
  if (bytes >= kHugePage) {
    return {Pages(RoundedUp(bytes, kHugePage)), [](std::byte* memory) { std::free(memory); }};
  }
  const size_t rounded = RoundedUp(bytes, kPieceAlignment);
  const auto from = [rounded](std::shared_ptr<Chunk> chunk, std::byte* memory) {
    return std::shared_ptr<std::byte>(
        memory, [chunk = std::move(chunk), rounded](std::byte* own) { chunk->GiveBack(own, rounded); });
  };
  absl::MutexLock lock(&mutex_);
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    const std::shared_ptr<Chunk> chunk = at->second.lock();
    if (chunk == nullptr) {
      at = chunks_.erase(at);
      continue;
    }
    if (std::byte* const memory = chunk->Take(rounded); memory != nullptr) return from(chunk, memory);
    ++at;
  }
  std::byte* const pages = Pages(kChunkBytes);
  if (pages == nullptr) return nullptr;
  auto chunk = std::make_shared<Chunk>(pages);
  chunks_.emplace(pages, chunk);
  std::byte* const memory = chunk->Take(rounded);
  return from(std::move(chunk), memory);
}

}  // namespace baton::kernels::cpu
