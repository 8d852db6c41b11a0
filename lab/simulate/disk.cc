#include "lab/simulate/disk.h"

#include <algorithm>
#include <optional>

namespace baton::lab::simulate {
namespace {

// The memory for writes on their way: kv::tier::DiskTier's default.
constexpr double kWriteBytes = 64 << 20;

}  // namespace

Disk::Disk(const FleetModel& model, int64_t capacity, const Events& events, kv::BlockPool& pool)
    : model_(model),
      events_(events),
      pool_(pool),
      capacity_(capacity),
      block_seconds_(static_cast<double>(model.block_bytes()) / model.disk_bandwidth) {
  if (capacity_ == 0) return;
  pool_.TrackCached([this](const kv::BlockPool::Cached& block) { Keep(block); });
}

Disk::~Disk() {
  if (capacity_ > 0) pool_.TrackCached({});
}

void Disk::WriteBehind() {
  if (capacity_ == 0) return;
  // A block for which there is no room waits in the pool: it may still be there then.
  while (pool_.HasNextCached() && (written_until_ - events_.now()) * model_.disk_bandwidth < kWriteBytes) {
    if (const std::optional<kv::BlockPool::Cached> block = pool_.NextCached()) Keep(*block);
  }
}

Disk::Kept Disk::Keep(const kv::BlockPool::Cached& block) {
  const bool sure = block.leased || block.uses > 1;
  if (const auto here = used_again_.find(block.hash); here != used_again_.end()) {
    if (sure) here->second = true;
    return Kept::kYes;
  }
  const double spared = model_.prefill_token * static_cast<double>(model_.block_tokens) - block_seconds_;
  if ((sure ? 1 : block.reuse) * spared <= block_seconds_) return Kept::kNotWorthIt;
  if ((written_until_ - events_.now()) * model_.disk_bandwidth >= kWriteBytes) return Kept::kNoRoom;
  Write(block.hash);
  return Kept::kYes;
}

void Disk::Write(const kv::BlockHash& hash) {
  written_until_ = std::max(written_until_, events_.now()) + block_seconds_;
  while (std::ssize(order_) >= capacity_) {
    const kv::BlockHash oldest = order_.front();
    order_.pop_front();
    const auto entry = used_again_.find(oldest);
    if (entry->second) {
      entry->second = false;
      order_.push_back(oldest);
      written_until_ += block_seconds_;
      continue;
    }
    used_again_.erase(entry);
    changes_[oldest] = false;
  }
  order_.push_back(hash);
  used_again_.emplace(hash, false);
  changes_[hash] = true;
}

int64_t Disk::Match(std::span<const kv::BlockHash> chain) const {
  const auto end =
      std::find_if(chain.begin(), chain.end(), [&](const auto& hash) { return !used_again_.contains(hash); });
  return end - chain.begin();
}

double Disk::ReadSeconds(int64_t blocks) const {
  return std::max(0.0, read_until_ - events_.now()) + model_.disk_latency +
         block_seconds_ * static_cast<double>(blocks);
}

void Disk::Touch(std::span<const kv::BlockHash> blocks) {
  for (const kv::BlockHash& hash : blocks) {
    if (const auto here = used_again_.find(hash); here != used_again_.end()) here->second = true;
  }
}

double Disk::Read(std::span<const kv::BlockHash> blocks) {
  const double done = events_.now() + ReadSeconds(std::ssize(blocks));
  read_until_ = done - model_.disk_latency;
  Touch(blocks);
  return done;
}

kv::BlockPool::Changes Disk::TakeChanges() {
  kv::BlockPool::Changes changes;
  for (const auto& [hash, stored] : changes_) (stored ? changes.stored : changes.evicted).push_back(hash);
  changes_.clear();
  return changes;
}

}  // namespace baton::lab::simulate
