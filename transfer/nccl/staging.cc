#include "transfer/nccl/staging.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

namespace baton::transfer {

Staging::Staging(device::Memory::Buffer slab, int64_t bytes)
    : slab_(std::move(slab)), bytes_(bytes / kUnit * kUnit) {
  if (bytes_ > 0) free_.emplace(0, bytes_);
}

int64_t Staging::Size(int64_t bytes) { return std::max<int64_t>(1, (bytes + kUnit - 1) / kUnit) * kUnit; }

std::optional<Staging::Run> Staging::Take(int64_t bytes) {
  const int64_t size = Size(bytes);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
  }
  if (best == free_.end()) return std::nullopt;
  const auto [offset, length] = *best;
  free_.erase(best);
  if (length > size) free_.emplace(offset + size, length - size);
  in_use_ += size;
  return Run{slab_.get() + offset, size};
}

Staging::Run Staging::TakeFront(Run& run, int64_t bytes) {
  BATON_CHECK(bytes % kUnit == 0 && bytes <= run.bytes);
  const Run front = {run.data, bytes};
  run = {run.data + bytes, run.bytes - bytes};
  return front;
}

int64_t Staging::longest() const {
  int64_t longest = 0;
  for (const auto& [offset, length] : free_) longest = std::max(longest, length);
  return longest;
}

void Staging::GiveBack(const Run& run) {
  int64_t offset = run.data - slab_.get(), length = run.bytes;
  in_use_ -= length;
  auto next = free_.lower_bound(offset);
  BATON_CHECK(in_use_ >= 0 && (next == free_.end() || offset + length <= next->first))
      << " staging memory given back twice";
  if (next != free_.end() && offset + length == next->first) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    BATON_CHECK(before->first + before->second <= offset) << " staging memory given back twice";
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_.emplace(offset, length);
}

}  // namespace baton::transfer
