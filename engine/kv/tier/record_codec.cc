#include "engine/kv/tier/record_codec.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::kv::tier {

RecordCodec::RecordCodec(const Identity& identity, const std::vector<DiskKey>& keys)
    : identity_(identity), digest_(DigestOf(identity)) {
  BATON_CHECK(identity.block_bytes > 0);
  for (const DiskKey& key : keys) ciphers_.push_back(std::make_unique<const RecordCipher>(key, digest_));
}

std::optional<const RecordCipher*> RecordCodec::CipherOf(const KeyId& key) const {
  if (ciphers_.empty()) {
    return key == KeyId{} ? std::optional<const RecordCipher*>(nullptr) : std::nullopt;
  }
  const auto cipher =
      std::find_if(ciphers_.begin(), ciphers_.end(), [&](const auto& one) { return one->id() == key; });
  if (cipher == ciphers_.end()) return std::nullopt;
  return cipher->get();
}

void RecordCodec::Close(Seal seal, std::span<std::byte> slot) const {
  BATON_CHECK_EQ(std::ssize(slot), identity_.slot_bytes());
  const auto block = slot.first(static_cast<size_t>(identity_.block_bytes));
  const auto padding = slot.subspan(block.size(), slot.size() - block.size() - kPage);
  std::fill(padding.begin(), padding.end(), std::byte{0});
  seal.identity = digest_;
  if (const RecordCipher* const cipher = writing(); cipher != nullptr) {
    cipher->Close(seal, slot);
  } else {
    seal.block_crc = Crc32c(block);
    seal.Write(slot.last(kPage));
  }
}

std::optional<Seal> RecordCodec::ReadSeal(const RecordCipher* cipher, std::span<const std::byte> page) const {
  if (cipher != nullptr) return cipher->ReadSeal(page);
  std::optional<Seal> seal = Seal::Read(page);
  if (seal.has_value() && seal->identity != digest_) seal.reset();
  return seal;
}

bool RecordCodec::Open(const RecordCipher* cipher, const BlockHash& hash, std::span<std::byte> slot,
                       BlockHash* root) const {
  const std::optional<Seal> seal =
      cipher != nullptr ? cipher->Open(slot) : ReadSeal(nullptr, slot.last(kPage));
  if (!seal.has_value() || seal->hash != hash) return false;
  if (root != nullptr) *root = seal->root;
  return cipher != nullptr ||
         Crc32c(slot.first(static_cast<size_t>(identity_.block_bytes))) == seal->block_crc;
}

}  // namespace baton::kv::tier
