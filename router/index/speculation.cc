#include "router/index/speculation.h"

#include <algorithm>

namespace baton::router::index {

void Speculation::Add(const Holder& holder, std::vector<kv::BlockHash> blocks, absl::Time until) {
  if (blocks.empty()) return;
  for (const kv::BlockHash& block : blocks) until_.prefetch(Pair(holder.life, block));
  for (const kv::BlockHash& block : blocks) {
    absl::Time& expires = until_.try_emplace({holder.life, block}, until).first->second;
    expires = std::max(expires, until);
  }
  batched_ += std::ssize(blocks);
  batches_.emplace(until, Batch{.holder = holder, .blocks = std::move(blocks)});
}

bool Speculation::Settle(const Holder& holder, const kv::BlockHash& block) {
  return until_.erase({holder.life, block}) > 0;
}

bool Speculation::TakeExpired(absl::Time now, Batch* batch) {
  if (batches_.empty()) return false;
  const auto first = batches_.begin();
  if (first->first > now && batched_ <= max_pairs_) return false;
  const absl::Time due = first->first;
  *batch = std::move(first->second);
  batches_.erase(first);
  batched_ -= std::ssize(batch->blocks);
  for (const kv::BlockHash& block : batch->blocks) until_.prefetch(Pair(batch->holder.life, block));
  std::erase_if(batch->blocks, [&](const kv::BlockHash& block) {
    const auto found = until_.find({batch->holder.life, block});
    if (found == until_.end() || found->second > due) return true;
    until_.erase(found);
    return false;
  });
  return true;
}

int64_t Speculation::bytes() const {
  return static_cast<int64_t>(until_.capacity() * (sizeof(Pair) + sizeof(absl::Time) + 1)) +
         batched_ * static_cast<int64_t>(sizeof(kv::BlockHash)) +
         static_cast<int64_t>(batches_.size() * (sizeof(Batch) + 64));
}

}  // namespace baton::router::index
