#include "protocol/prompt_chain.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/base/digest.h"

namespace baton::kv {
namespace {

// As in block_hash.cc: each names one use of SHA-256 and the version of what it stands for. The version grows
// with the arithmetic of reusable_span.h, and with the rotation of landed keys.
constexpr std::string_view kCanonicalDomain = "baton/kv/chunk/1";
constexpr std::string_view kFoldDomain = "baton/kv/approximate/1";

BlockHash HashOf(const Sha256Digest& digest) {
  return BlockHash::FromBytes({reinterpret_cast<const char*>(digest.data()), BlockHash::kBytes});
}

// SHA-256("baton/kv/approximate/1", parent, begin and end of each span, 8 bytes each, little-endian).
BlockHash Fold(const BlockHash& parent, std::span<const ReusableSpan> spans) {
  Sha256 sha;
  sha.Update(kFoldDomain);
  sha.Update(parent.bytes());
  for (const ReusableSpan& span : spans) {
    const std::array<int64_t, 2> ends = {span.begin, span.end};
    sha.Update({reinterpret_cast<const char*>(ends.data()), sizeof ends});
  }
  return HashOf(sha.Finish());
}

}  // namespace

PromptChain::PromptChain(const BlockHash& root, std::vector<ReusableSpan> spans)
    : root_(root), spans_(std::move(spans)) {}

BlockHash PromptChain::Child(const BlockHash& parent, int64_t index, std::span<const TokenId> tokens) const {
  const auto begin_at = [](const ReusableSpan& span, int64_t position) { return span.begin < position; };
  const auto first = std::lower_bound(spans_.begin(), spans_.end(), index * int64_t{kBlockTokens}, begin_at);
  const auto behind = std::lower_bound(first, spans_.end(), (index + 1) * int64_t{kBlockTokens}, begin_at);
  return ChildHash(first == behind ? parent : Fold(parent, {first, behind}), tokens);
}

std::vector<BlockHash> PromptChain::Hashes(std::span<const TokenId> tokens) const {
  if (spans_.empty()) return HashChain(root_, tokens);
  std::vector<BlockHash> chain;
  chain.reserve(tokens.size() / kBlockTokens);
  const BlockHash* parent = &root_;
  for (int64_t index = 0; (index + 1) * kBlockTokens <= std::ssize(tokens); ++index) {
    chain.push_back(
        Child(*parent, index, tokens.subspan(static_cast<size_t>(index * kBlockTokens), kBlockTokens)));
    parent = &chain.back();
  }
  return chain;
}

BlockHash CanonicalRoot(const BlockHash& root) {
  Sha256 sha;
  sha.Update(kCanonicalDomain);
  sha.Update(root.bytes());
  return HashOf(sha.Finish());
}

}  // namespace baton::kv
