#include "protocol/block_hash.h"

#include <fmt/format.h>

#include <bit>

#include "common/base/check.h"
#include "common/base/digest.h"

namespace baton::kv {
namespace {

// Names this use of SHA-256 and its version, so that no digest made for another purpose can be a root.
constexpr std::string_view kRootDomain = "baton/kv/root/1";

// Token ids are hashed as they lie in memory.
static_assert(std::endian::native == std::endian::little, "hashes are defined over little-endian token ids");
static_assert(sizeof(TokenId) == sizeof(int32_t));

BlockHash Truncate(const Sha256Digest& digest) {
  return BlockHash::FromBytes({reinterpret_cast<const char*>(digest.data()), BlockHash::kBytes});
}

// Without its length in front, ("ab", "c") and ("a", "bc") would be one root.
void UpdateWithLength(Sha256& sha, std::string_view bytes) {
  const uint64_t length = bytes.size();
  sha.Update({reinterpret_cast<const char*>(&length), sizeof(length)});
  sha.Update(bytes);
}

BlockHash ChildHash(Sha256& sha, const BlockHash& parent, std::span<const TokenId> tokens) {
  BATON_CHECK_EQ(tokens.size(), size_t{kBlockTokens});
  std::array<char, BlockHash::kBytes + kBlockTokens * sizeof(int32_t)> message;
  std::memcpy(message.data(), parent.bytes().data(), BlockHash::kBytes);
  std::memcpy(message.data() + BlockHash::kBytes, tokens.data(), kBlockTokens * sizeof(int32_t));
  sha.Update({message.data(), message.size()});
  return Truncate(sha.Finish());
}

}  // namespace

BlockHash BlockHash::FromBytes(std::string_view bytes) {
  BATON_CHECK_EQ(bytes.size(), kBytes);
  BlockHash hash;
  std::memcpy(hash.bytes_.data(), bytes.data(), kBytes);
  return hash;
}

std::string BlockHash::ToHex() const { return fmt::format("{:02x}", fmt::join(bytes_, "")); }

BlockHash RootHash(std::string_view fingerprint, const TenantSalt& salt) {
  Sha256 sha;
  sha.Update(kRootDomain);
  UpdateWithLength(sha, fingerprint);
  UpdateWithLength(sha, salt.bytes());
  return Truncate(sha.Finish());
}

BlockHash ChildHash(const BlockHash& parent, std::span<const TokenId> tokens) {
  Sha256 sha;
  return ChildHash(sha, parent, tokens);
}

std::vector<BlockHash> HashChain(const BlockHash& root, std::span<const TokenId> tokens) {
  Sha256 sha;  // one for the whole chain: a context of its own would double the price of a block
  std::vector<BlockHash> chain;
  chain.reserve(tokens.size() / kBlockTokens);
  BlockHash parent = root;
  while (tokens.size() >= kBlockTokens) {
    parent = ChildHash(sha, parent, tokens.first(kBlockTokens));
    chain.push_back(parent);
    tokens = tokens.subspan(kBlockTokens);
  }
  return chain;
}

}  // namespace baton::kv
