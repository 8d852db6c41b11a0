// RecordCodec: how the blocks of one identity become records and are opened again, in the clear or under
// keys: what every store has in common (record.h, record_cipher.h). Constant, any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv/tier/record.h"
#include "engine/kv/tier/record_cipher.h"
#include "protocol/block_hash.h"

namespace baton::kv::tier {

class RecordCodec {
 public:
  // The first key encrypts, the others only open what is there; none: records are in the clear.
  RecordCodec(const Identity& identity, const std::vector<DiskKey>& keys);

  const Identity& identity() const { return identity_; }
  const Sha256Digest& digest() const { return digest_; }
  bool encrypts() const { return !ciphers_.empty(); }
  // The cipher that encrypts; null: none.
  const RecordCipher* writing() const { return ciphers_.empty() ? nullptr : ciphers_.front().get(); }
  // The cipher that opens records of a file with this key in its header; null: they are in the clear.
  // Nothing: they can't be opened, or are in the clear where there is a key.
  std::optional<const RecordCipher*> CipherOf(const KeyId& key) const;

  // Makes a record of a slot whose first bytes are a block. `seal` lacks only the sum and the identity.
  void Close(Seal seal, std::span<std::byte> slot) const;
  // The seal in a slot's last page, or nothing: torn, damaged, of another key or another identity.
  std::optional<Seal> ReadSeal(const RecordCipher* cipher, std::span<const std::byte> page) const;
  // True if the slot holds this block, which is then decrypted in place; sets `root`.
  bool Open(const RecordCipher* cipher, const BlockHash& hash, std::span<std::byte> slot,
            BlockHash* root = nullptr) const;

 private:
  const Identity identity_;
  const Sha256Digest digest_;
  std::vector<std::unique_ptr<const RecordCipher>> ciphers_;
};

}  // namespace baton::kv::tier
