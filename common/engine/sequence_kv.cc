#include "common/engine/sequence_kv.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::engine {

void SequenceKv::Lease(std::vector<kv::PrefixLease> leases, absl::Time since) {
  BATON_CHECK(blocks_.empty());
  leases_ = std::move(leases);
  leased_since_ = since;
}

void SequenceKv::LeasePublished() {
  while (!lease_refused_ && leased_ < std::ssize(hashes_)) {
    // The strongest lease that covers the next block, and how far it goes.
    std::optional<kv::LeaseClass> strongest;
    int64_t end = std::ssize(hashes_);
    for (const kv::PrefixLease& lease : leases_) {
      if (lease.blocks <= leased_) continue;
      if (!strongest.has_value() || lease.lease_class > *strongest) {
        strongest = lease.lease_class;
        end = std::min(std::ssize(hashes_), lease.blocks);
      } else if (lease.lease_class == *strongest) {
        end = std::max(end, std::min(std::ssize(hashes_), lease.blocks));
      }
    }
    if (!strongest.has_value()) return;
    const auto blocks = std::span(blocks_).subspan(leased_, end - leased_);
    const int64_t granted = pool_->Lease(blocks, leased_, *strongest, root_, leased_since_);
    leased_ += granted;
    lease_refused_ = granted < std::ssize(blocks);
  }
}

absl::Status SequenceKv::Reserve(std::span<const TokenId> tokens, int64_t capacity) {
  BATON_CHECK(blocks_.empty() && !tokens.empty());
  const auto reusable = (tokens.size() - 1) / kBlockTokens * kBlockTokens;
  const std::vector<kv::BlockHash> chain = kv::HashChain(root_, tokens.first(reusable));
  blocks_ = pool_->AcquirePrefix(chain);
  const auto cached_blocks = static_cast<int64_t>(blocks_.size());
  if (absl::Status grown = Grow(capacity); !grown.ok()) {
    Release();
    return grown;
  }
  hashes_.assign(chain.begin(), chain.begin() + cached_blocks);
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

void SequenceKv::Computed(std::span<const TokenId> tokens, int64_t computed) {
  BATON_CHECK(computed >= computed_ && computed <= static_cast<int64_t>(tokens.size()));
  GiveUpReplaced();
  computed_ = computed;
  for (auto index = static_cast<int64_t>(hashes_.size()); (index + 1) * kBlockTokens <= computed_; ++index) {
    const kv::BlockHash& parent = hashes_.empty() ? root_ : hashes_.back();
    hashes_.push_back(kv::ChildHash(parent, tokens.subspan(index * kBlockTokens, kBlockTokens)));
    // Another sequence may have published equal bytes meanwhile: share its block. Ours stays until
    // the next call: the step in flight may still read it.
    const BlockId published = pool_->Publish(blocks_[index], hashes_.back());
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
  leased_ = 0;
  lease_refused_ = false;
  cached_ = computed_ = 0;
}

}  // namespace baton::engine
