#include "engine/kv/index/lease_table.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::kv {

LeaseTable::Grant LeaseTable::Lease(BlockId block, LeaseClass lease_class, const Tenant& tenant,
                                    int64_t depth, absl::Time since) {
  if (const auto found = leases_.find(block); found != leases_.end()) {
    Entry& entry = found->second;
    BATON_CHECK(!entry.cached) << "block " << block.value() << " is not in use";
    if (lease_class > entry.lease_class) {
      entry.lease_class = lease_class;
      ++Count(entry).granted;
    }
    entry.until = std::max(entry.until, since + TtlOf(entry.lease_class));
    return {.granted = true, .dropped = std::nullopt};
  }
  const Grant grant = MakeRoom(tenant);
  if (!grant.granted) return grant;
  const Entry entry = {
      .lease_class = lease_class, .depth = depth, .until = since + TtlOf(lease_class), .tenant = tenant};
  leases_.emplace(block, entry);
  ++tenants_[tenant].blocks;
  ++Count(entry).granted;
  return grant;
}

LeaseTable::Grant LeaseTable::MakeRoom(const Tenant& tenant) {
  if (size() < most_) return {.granted = true, .dropped = std::nullopt};
  const auto own = tenants_.find(tenant);
  const int64_t owned = own == tenants_.end() ? 0 : own->second.blocks;
  const int64_t part = most_ / (std::ssize(tenants_) + (owned == 0 ? 1 : 0));
  if (owned >= part) return {};
  // It gives back what is nearest to being evicted. The tenant itself is not beyond its part.
  const Share* const borrower = Borrower(part);
  if (borrower == nullptr) return {};
  const BlockId dropped = borrower->cached.begin()->block;
  Break(dropped);
  return {.granted = true, .dropped = dropped};
}

const LeaseTable::Share* LeaseTable::Borrower(int64_t part) const {
  const Share* borrower = nullptr;
  for (const auto& [tenant, share] : tenants_) {
    if (share.blocks <= part || share.cached.empty()) continue;
    if (borrower == nullptr || share.blocks > borrower->blocks ||
        (share.blocks == borrower->blocks && *share.cached.begin() < *borrower->cached.begin())) {
      borrower = &share;
    }
  }
  return borrower;
}

void LeaseTable::Renew(BlockId block, absl::Time since) {
  const auto found = leases_.find(block);
  if (found == leases_.end()) return;
  Entry& entry = found->second;
  BATON_CHECK(!entry.cached) << "block " << block.value() << " is not in use";
  entry.until = std::max(entry.until, since + TtlOf(entry.lease_class));
  entry.used_again = true;
  ++Count(entry).renewed;
}

void LeaseTable::Hold(BlockId block) {
  Entry& entry = leases_.at(block);
  BATON_CHECK(entry.cached) << "block " << block.value() << " is in use";
  entry.cached = false;
  cached_[static_cast<size_t>(entry.lease_class)].erase(KeyOf(block, entry));
  tenants_.at(entry.tenant).cached.erase(KeyOf(block, entry));
}

void LeaseTable::Cache(BlockId block) {
  Entry& entry = leases_.at(block);
  BATON_CHECK(!entry.cached) << "block " << block.value() << " is cached";
  entry.cached = true;
  cached_[static_cast<size_t>(entry.lease_class)].insert(KeyOf(block, entry));
  tenants_.at(entry.tenant).cached.insert(KeyOf(block, entry));
}

bool LeaseTable::EndIfPast(BlockId block, absl::Time now) {
  const Entry& entry = leases_.at(block);
  if (entry.until > now) return false;
  if (!entry.used_again) ++Count(entry).expired_unused;
  Remove(block);
  return true;
}

std::vector<BlockId> LeaseTable::Expire(absl::Time now) {
  std::vector<BlockId> ended;
  for (absl::btree_set<Key>& cached : cached_) {
    while (!cached.empty() && cached.begin()->until <= now) {
      const BlockId block = cached.begin()->block;
      Hold(block);
      EndIfPast(block, now);
      ended.push_back(block);
    }
  }
  return ended;
}

void LeaseTable::Break(BlockId block) {
  ++Count(leases_.at(block)).broken;
  Hold(block);
  Remove(block);
}

void LeaseTable::Remove(BlockId block) {
  const auto found = leases_.find(block);
  const auto share = tenants_.find(found->second.tenant);
  leases_.erase(found);
  if (--share->second.blocks == 0) tenants_.erase(share);
}

std::vector<HeldLease> LeaseTable::LeasesOf(std::span<const BlockId> run, absl::Time now) const {
  std::array<HeldLease, kLeaseClasses> leases;
  for (int64_t i = 0; i < std::ssize(run); ++i) {
    const auto found = leases_.find(run[i]);
    if (found == leases_.end() || found->second.until <= now) continue;
    const Entry& entry = found->second;
    HeldLease& lease = leases[static_cast<size_t>(entry.lease_class)];
    const absl::Duration left = std::min(entry.until - now, TtlOf(entry.lease_class));
    lease = {.lease_class = entry.lease_class, .blocks = i + 1, .left = std::max(lease.left, left)};
  }
  std::vector<HeldLease> told;
  for (auto lease = leases.rbegin(); lease != leases.rend(); ++lease) {
    const bool adds = told.empty() || lease->blocks > told.back().blocks;
    if (lease->blocks > 0 && adds) told.push_back(*lease);
  }
  return told;
}

bool LeaseTable::cached(BlockId block) const {
  const auto found = leases_.find(block);
  return found != leases_.end() && found->second.cached;
}

BlockId LeaseTable::First() const {
  // No tenant's marks cost another the leases of its own part, whatever their classes.
  if (tenants_.size() > 1) {
    if (const Share* const borrower = Borrower(most_ / std::ssize(tenants_)))
      return borrower->cached.begin()->block;
  }
  for (const absl::btree_set<Key>& cached : cached_) {
    if (!cached.empty()) return cached.begin()->block;
  }
  BATON_CHECK(false) << "no leased block is cached";
  return BlockId(0);
}

void LeaseTable::CheckTables() const {
  absl::flat_hash_map<Tenant, std::pair<int64_t, int64_t>> seen;  // blocks, cached ones
  int64_t cached = 0;
  for (const auto& [block, entry] : leases_) {
    ++seen[entry.tenant].first;
    const Key key = KeyOf(block, entry);
    BATON_CHECK_EQ(cached_[static_cast<size_t>(entry.lease_class)].contains(key), entry.cached);
    BATON_CHECK_EQ(tenants_.at(entry.tenant).cached.contains(key), entry.cached);
    if (!entry.cached) continue;
    ++cached;
    ++seen[entry.tenant].second;
  }
  BATON_CHECK_EQ(cached, cached_size());
  BATON_CHECK_EQ(seen.size(), tenants_.size());
  for (const auto& [tenant, share] : tenants_) {
    BATON_CHECK_EQ(seen[tenant].first, share.blocks);
    BATON_CHECK_EQ(seen[tenant].second, std::ssize(share.cached));
  }
}

}  // namespace baton::kv
