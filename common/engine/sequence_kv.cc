#include "common/engine/sequence_kv.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::engine {

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
  cached_ = computed_ = 0;
}

}  // namespace baton::engine
