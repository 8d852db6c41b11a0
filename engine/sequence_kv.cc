#include "engine/sequence_kv.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::engine {

void SequenceKv::Lease(std::vector<kv::PrefixLease> leases, absl::Time since) {
  BATON_CHECK(blocks_.empty());
  own_ = {};
  for (const kv::PrefixLease& lease : leases) own_.leases.push_back({lease, since});
}

void SequenceKv::Inherit(std::span<const kv::HeldLease> leases, int64_t first, absl::Time now) {
  inherited_ = {};
  for (const kv::HeldLease& lease : leases) {
    inherited_.leases.push_back({{.lease_class = lease.lease_class, .blocks = first + lease.blocks},
                                 now + lease.left - kv::TtlOf(lease.lease_class)});
  }
  LeasePublished(inherited_);
}

void SequenceKv::LeasePublished() {
  LeasePublished(own_);
  LeasePublished(inherited_);
}

void SequenceKv::LeasePublished(Asked& asked) {
  while (!asked.refused && asked.leased < std::ssize(hashes_)) {
    // The strongest lease that covers the next block.
    const auto strength = [](const Asked::Since& lease) {
      return std::tuple(lease.lease_class, lease.since, lease.blocks);
    };
    const Asked::Since* strongest = nullptr;
    for (const Asked::Since& lease : asked.leases) {
      if (lease.blocks <= asked.leased) continue;
      if (strongest == nullptr || strength(lease) > strength(*strongest)) strongest = &lease;
    }
    if (strongest == nullptr) return;
    const int64_t end = std::min(std::ssize(hashes_), strongest->blocks);
    const auto blocks = std::span(blocks_).subspan(asked.leased, end - asked.leased);
    const int64_t granted =
        pool_->Lease(blocks, asked.leased, strongest->lease_class, chain_.root(), strongest->since);
    asked.leased += granted;
    asked.refused = granted < std::ssize(blocks);
  }
}

absl::Status SequenceKv::Reserve(std::span<const TokenId> tokens, int64_t capacity) {
  BATON_CHECK(blocks_.empty() && !tokens.empty());
  if (sharing_ == Sharing::kNone) return Reserve(std::vector<kv::BlockHash>(), capacity);
  const auto reusable = (tokens.size() - 1) / kBlockTokens * kBlockTokens;
  return Reserve(chain_.Hashes(tokens.first(reusable)), capacity);
}

absl::Status SequenceKv::ReserveWhole(std::span<const TokenId> tokens) {
  BATON_CHECK(blocks_.empty() && !tokens.empty() && tokens.size() % kBlockTokens == 0);
  return Reserve(chain_.Hashes(tokens), std::ssize(tokens));
}

absl::Status SequenceKv::Reserve(const std::vector<kv::BlockHash>& findable, int64_t capacity) {
  blocks_ = pool_->AcquirePrefix(findable);
  const auto cached_blocks = static_cast<int64_t>(blocks_.size());
  if (absl::Status grown = Grow(capacity); !grown.ok()) {
    Release();
    return grown;
  }
  hashes_.assign(findable.begin(), findable.begin() + cached_blocks);
  cached_ = computed_ = cached_blocks * kBlockTokens;
  LeasePublished();
  return absl::OkStatus();
}

absl::Status SequenceKv::Grow(int64_t capacity) {
  const int64_t missing = BlocksFor(capacity) - static_cast<int64_t>(blocks_.size());
  if (missing <= 0) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::vector<BlockId> more, pool_->Allocate(missing));
  blocks_.insert(blocks_.end(), more.begin(), more.end());
  return absl::OkStatus();
}

void SequenceKv::Trim(int64_t capacity) {
  BATON_CHECK(capacity >= computed_);
  const auto kept = static_cast<size_t>(BlocksFor(capacity));
  if (blocks_.size() <= kept) return;
  pool_->Release(std::span(blocks_).subspan(kept));
  blocks_.resize(kept);
}

void SequenceKv::Computed(std::span<const TokenId> tokens, int64_t computed) {
  BATON_CHECK(computed >= computed_ && computed <= static_cast<int64_t>(tokens.size()));
  GiveUpReplaced();
  computed_ = computed;
  if (sharing_ == Sharing::kNone) return;
  for (auto index = static_cast<int64_t>(hashes_.size()); (index + 1) * kBlockTokens <= computed_; ++index) {
    const kv::BlockHash& parent = hashes_.empty() ? chain_.root() : hashes_.back();
    hashes_.push_back(chain_.Child(parent, index, tokens.subspan(index * kBlockTokens, kBlockTokens)));
    // Another sequence may have published equal bytes meanwhile: share its block. Ours stays until
    // the next call: the step in flight may still read it.
    const BlockId published = pool_->Publish(blocks_[index], hashes_.back(), chain_.root());
    if (published != blocks_[index]) {
      pool_->Retain(published);
      replaced_.push_back(blocks_[index]);
      blocks_[index] = published;
    }
  }
  LeasePublished();
}

void SequenceKv::GiveUpReplaced() {
  pool_->Release(replaced_);
  replaced_.clear();
}

void SequenceKv::Release() {
  GiveUpReplaced();
  pool_->Release(blocks_);
  blocks_.clear();
  hashes_.clear();
  own_.leased = 0;
  own_.refused = false;
  inherited_ = {};
  cached_ = computed_ = 0;
}

}  // namespace baton::engine
