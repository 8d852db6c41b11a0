// BlockHash: what a full block of KV *is*: the first 128 bits of SHA-256 over (parent hash, the 16 token
// ids). The root of every chain is a digest of the model's fingerprint and the tenant's salt, and the only
// way to make one is RootHash(fingerprint, salt): a prefix of another tenant can't be hit by construction.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace baton::kv {

class BlockHash {
 public:
  static constexpr size_t kBytes = 16;
  // The all-zero hash, which no block has.
  BlockHash() = default;
  // From its wire form; `bytes` has kBytes bytes.
  static BlockHash FromBytes(std::string_view bytes);

  std::string_view bytes() const { return {reinterpret_cast<const char*>(bytes_.data()), kBytes}; }
  std::string ToHex() const;
  friend auto operator<=>(const BlockHash&, const BlockHash&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const BlockHash& hash) {
    uint64_t word;  // already uniform
    std::memcpy(&word, hash.bytes_.data(), sizeof(word));
    return H::combine(std::move(state), word);
  }

 private:
  std::array<uint8_t, kBytes> bytes_{};
};

// The secret that keeps one tenant's prefixes apart from another's. Not a string, so that it can't be left
// out.
class TenantSalt {
 public:
  explicit TenantSalt(std::string bytes) : bytes_(std::move(bytes)) {}
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Root of a tenant's chains on a model: SHA-256("baton/kv/root/1", fingerprint, salt), the last two each with
// their length in front (8 bytes, little-endian). `fingerprint` is the model's canonical digest
// (protocol::Fingerprint::Digest).
BlockHash RootHash(std::string_view fingerprint, const TenantSalt& salt);

// Hash of the block that follows `parent` and holds `tokens` (kBlockTokens of them, each 4 bytes,
// little-endian).
BlockHash ChildHash(const BlockHash& parent, std::span<const TokenId> tokens);

// Hashes of all full blocks of `tokens`, in order. A tail that fills no block has no hash.
std::vector<BlockHash> HashChain(const BlockHash& root, std::span<const TokenId> tokens);

}  // namespace baton::kv
