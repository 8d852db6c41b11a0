#include "engine/kv/index/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::kv {

namespace {

ReuseForecast::Kind KindOf(int uses, bool returns) {
  switch (uses) {
    case 0:
    case 1:
      return returns ? ReuseForecast::kNewReturning : ReuseForecast::kNewCold;
    case 2:
      return ReuseForecast::kUsedTwice;
    case 3:
      return ReuseForecast::kUsedThrice;
    default:
      return ReuseForecast::kUsedOften;
  }
}

}  // namespace

BlockPool::BlockPool(int64_t total, Eviction eviction)
    : cached_(total, eviction), leases_(0), evicted_(total) {
  BATON_CHECK(total >= 0 && total < int64_t{UINT32_MAX}) << total << " blocks";
  blocks_.resize(total);
  SetLeaseShare(kLeaseShare);
  free_.reserve(total);
  for (int64_t id = total; id-- > 0;) free_.push_back(BlockId(static_cast<uint32_t>(id)));
}

absl::StatusOr<std::vector<BlockId>> BlockPool::Allocate(int64_t count) {
  BATON_CHECK(count >= 0) << count;
  if (count > available()) {
    return absl::ResourceExhaustedError(
        fmt::format("{} KV blocks wanted, {} can be had ({} free and {} cached, {} held, of {})", count,
                    available(), free_.size(), cached(), held_, blocks_.size()));
  }
  std::vector<BlockId> taken;
  taken.reserve(count);
  while (std::ssize(taken) < count) {
    if (free_.empty()) Evict(Victim());
    const BlockId id = free_.back();
    free_.pop_back();
    Block& block = At(id);
    block.references = 1;
    block.generation = Generation(block.generation.value() + 1);
    ++held_;
    taken.push_back(id);
  }
  CheckAfterOperation();
  return taken;
}

std::vector<BlockId> BlockPool::AcquirePrefix(std::span<const BlockHash> chain) {
  std::vector<BlockId> run;
  for (const BlockHash& hash : chain) {
    const auto found = published_.find(hash);
    if (found == published_.end()) break;
    AddReference(found->second);
    Block& block = At(found->second);
    block.uses = std::min<uint8_t>(kMaxUses, block.uses + 1);
    leases_.Renew(found->second, now_);
    run.push_back(found->second);
  }
  CheckAfterOperation();
  return run;
}

int64_t BlockPool::MatchPrefix(std::span<const BlockHash> chain) const {
  int64_t length = 0;
  for (const BlockHash& hash : chain) {
    if (!published_.contains(hash)) break;
    ++length;
  }
  return length;
}

BlockId BlockPool::Publish(BlockId id, const BlockHash& hash, const BlockHash& root) {
  Block& block = At(id);
  BATON_CHECK(block.references > 0) << "block " << id.value() << " is published by nobody";
  BATON_CHECK(!block.published || block.hash == hash)
      << "block " << id.value() << " is published as " << block.hash.ToHex() << " already";
  const auto [entry, inserted] = published_.try_emplace(hash, id);
  if (inserted) {
    block.published = true;
    block.hash = hash;
    block.root = root;
    block.uses = 1;
    if (const auto memory = evicted_.Take(hash)) {
      block.uses = std::min<uint8_t>(kMaxUses, memory->uses + 1);
      cached_.ReusedAfterEviction(memory->kind, memory->entered);
    }
    NoteChange(hash, /*stored=*/true);
  }
  CheckAfterOperation();
  return entry->second;
}

void BlockPool::Retain(BlockId id) {
  AddReference(id);
  CheckAfterOperation();
}

void BlockPool::Release(std::span<const BlockId> blocks) {
  if (blocks.empty()) return;
  // They stay or go as one, by what the middle one is.
  const auto uses = [&](size_t i) { return static_cast<int>(At(blocks[i]).uses); };
  const auto kind = KindOf(uses(blocks.size() / 2), uses(0) > 1);
  cached_.BeginRelease();
  for (size_t i = blocks.size(); i-- > 0;) {
    Block& block = At(blocks[i]);
    BATON_CHECK(block.references > 0) << "block " << blocks[i].value() << " has no reference to release";
    if (--block.references > 0) continue;
    --held_;
    if (leases_.contains(blocks[i]) && !leases_.EndIfPast(blocks[i], now_)) {
      leases_.Cache(blocks[i]);
    } else if (block.published) {
      cached_.Add(blocks[i], kind);
    } else {
      free_.push_back(blocks[i]);
    }
  }
  if (evicting_) {
    for (const BlockId id : blocks) {
      Block& block = At(id);
      if (block.references > 0 || !block.published || block.recent) continue;
      block.recent = true;
      recent_.push_back(id);
    }
  }
  CheckAfterOperation();
}

void BlockPool::TrackCached(std::function<void(const Cached&)> evicting) { evicting_ = std::move(evicting); }

std::optional<BlockPool::Cached> BlockPool::NextCached() {
  while (!recent_.empty()) {
    const BlockId id = recent_.front();
    recent_.pop_front();
    Block& block = At(id);
    block.recent = false;
    if (block.published) return Describe(id);
  }
  return std::nullopt;
}

BlockPool::Cached BlockPool::Describe(BlockId id) const {
  const Block& block = At(id);
  return {.block = id,
          .hash = block.hash,
          .root = block.root,
          .uses = block.uses,
          .leased = leases_.contains(id),
          .reuse = cached_.ReuseShare(KindOf(block.uses, block.uses > 1))};
}

int64_t BlockPool::Lease(std::span<const BlockId> blocks, int64_t first, LeaseClass lease_class,
                         const LeaseTable::Tenant& tenant, absl::Time since) {
  int64_t leased = 0;
  for (const BlockId id : blocks) {
    const Block& block = At(id);
    BATON_CHECK(block.references > 0 && block.published) << "block " << id.value() << " can have no lease";
    const LeaseTable::Grant grant = leases_.Lease(id, lease_class, tenant, first + leased, since);
    if (grant.dropped.has_value()) EnterUnleased(std::span(&*grant.dropped, 1));
    if (!grant.granted) break;
    ++leased;
  }
  CheckAfterOperation();
  return leased;
}

void BlockPool::SetLeaseShare(double share) {
  BATON_CHECK(share >= 0 && share <= 1) << share;
  leases_.SetMost(static_cast<int64_t>(share * static_cast<double>(blocks_.size())));
}

void BlockPool::Advance(absl::Time now) {
  now_ = std::max(now_, now);
  EnterUnleased(leases_.Expire(now_));
  CheckAfterOperation();
}

void BlockPool::EnterUnleased(std::span<const BlockId> blocks) {
  cached_.BeginRelease();
  for (const BlockId id : blocks) cached_.Add(id, KindOf(At(id).uses, At(id).uses > 1));
}

Generation BlockPool::generation(BlockId block) const { return At(block).generation; }

int BlockPool::references(BlockId block) const { return At(block).references; }

std::optional<BlockHash> BlockPool::hash(BlockId block) const {
  if (!At(block).published) return std::nullopt;
  return At(block).hash;
}

BlockPool::Counts BlockPool::counts() const {
  return {.free = std::ssize(free_),
          .held = held_,
          .cached = cached(),
          .total = std::ssize(blocks_),
          .leased = leases_.cached_size()};
}

int64_t BlockPool::available() const { return std::ssize(free_) + cached(); }

BlockPool::Changes BlockPool::TakeChanges() {
  Changes taken{.reset = changes_lost_, .stored = {}, .evicted = {}};
  for (const auto& [hash, stored] : changes_) (stored ? taken.stored : taken.evicted).push_back(hash);
  changes_.clear();
  changes_lost_ = false;
  return taken;
}

std::vector<BlockHash> BlockPool::Published() const {
  std::vector<BlockHash> hashes;
  hashes.reserve(published_.size());
  for (const auto& [hash, block] : published_) hashes.push_back(hash);
  return hashes;
}

void BlockPool::CheckConservation() const {
  int64_t held = 0, cached = 0, free = 0, published = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const BlockId id(static_cast<uint32_t>(i));
    BATON_CHECK(block.references >= 0) << "block " << i;
    if (block.references > 0) {
      ++held;
    } else if (block.published) {
      ++cached;
    } else {
      ++free;
    }
    const bool waits = block.references == 0 && block.published;
    BATON_CHECK(cached_.contains(id) == (waits && !leases_.contains(id))) << "block " << i;
    BATON_CHECK(leases_.cached(id) == (waits && leases_.contains(id))) << "block " << i;
    BATON_CHECK(block.published || !leases_.contains(id)) << "block " << i;
    if (block.published) {
      ++published;
      const auto found = published_.find(block.hash);
      BATON_CHECK(found != published_.end() && found->second == id) << "block " << i;
    }
  }
  BATON_CHECK_EQ(held, held_);
  BATON_CHECK_EQ(cached, this->cached());
  BATON_CHECK_EQ(free, std::ssize(free_));
  BATON_CHECK_EQ(published, std::ssize(published_));
  BATON_CHECK_EQ(free + held + cached, std::ssize(blocks_));
  cached_.CheckRuns();
  leases_.CheckTables();
  std::vector<bool> listed(blocks_.size());
  for (const BlockId id : free_) {
    BATON_CHECK(!listed[id.value()] && At(id).references == 0 && !At(id).published) << "block " << id.value();
    listed[id.value()] = true;
  }
}

BlockPool::Block& BlockPool::At(BlockId block) {
  BATON_CHECK(block.value() < blocks_.size()) << "block " << block.value() << " of " << blocks_.size();
  return blocks_[block.value()];
}

const BlockPool::Block& BlockPool::At(BlockId block) const { return const_cast<BlockPool*>(this)->At(block); }

void BlockPool::AddReference(BlockId id) {
  Block& block = At(id);
  if (block.references == 0) {
    BATON_CHECK(block.published) << "block " << id.value() << " is free";
    leases_.contains(id) ? leases_.Hold(id) : cached_.Reuse(id);
    ++held_;
  }
  ++block.references;
}

void BlockPool::Evict(BlockId id) {
  Block& block = At(id);
  if (evicting_) evicting_(Describe(id));
  if (leases_.contains(id)) {
    leases_.Break(id);
  } else {
    evicted_.Remember(block.hash,
                      {.entered = cached_.entered(id), .uses = block.uses, .kind = cached_.kind(id)});
    cached_.Evict(id);
  }
  published_.erase(block.hash);
  NoteChange(block.hash, /*stored=*/false);
  block.published = false;
  block.hash = BlockHash();
  free_.push_back(id);
}

void BlockPool::NoteChange(const BlockHash& hash, bool stored) {
  if (changes_lost_) return;
  const auto [entry, inserted] = changes_.try_emplace(hash, stored);
  if (!inserted) {
    // A hash is stored and evicted in turn, so a second change undoes the first.
    BATON_CHECK(entry->second != stored) << hash.ToHex();
    changes_.erase(entry);
  } else if (changes_.size() > kMaxPendingChanges) {
    changes_.clear();
    changes_lost_ = true;
  }
}

void BlockPool::CheckAfterOperation() {
#ifndef NDEBUG
  constexpr size_t kSmallPool = 256;
  constexpr uint64_t kEvery = 1024;
  BATON_CHECK_EQ(std::ssize(free_) + held_ + cached(), std::ssize(blocks_));
  if (blocks_.size() <= kSmallPool || ++operations_ % kEvery == 0) CheckConservation();
#endif
}

}  // namespace baton::kv
