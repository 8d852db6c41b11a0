// RecordCipher: records that only who has the key can read, or make (--kv-disk-key). Both a block and what
// its seal says of it (whose it is, which tokens it follows from) are encrypted with AES-256-GCM:
//
//   keys of a record := HKDF-SHA256(key, salt = 32 random bytes of the record, info = purpose, model and
//                                   layout, and for the block the root of the tenant's chains)
//
// Each record draws its random bytes anew, so each key and nonce encrypts one message, whatever was written
// before, is torn, or comes back from an old copy of the disk; nothing has to be counted. A tenant's blocks
// have keys of their own. The block's tag covers its hash, root and sequence too. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/aead.h"
#include "engine/kv/tier/record.h"

namespace baton::kv::tier {

// Zeroed when it goes.
struct DiskKey : std::array<std::byte, kAeadKeyBytes> {
  ~DiskKey();
};

// The keys in a file: each 64 hex digits, with commas between. The first one encrypts; what the others have
// encrypted can be read. INVALID_ARGUMENT never shows the content.
absl::StatusOr<std::vector<DiskKey>> ReadDiskKeys(const std::string& path);

class RecordCipher {
 public:
  // `identity`: digest of what its records have in common.
  RecordCipher(const DiskKey& key, const Sha256Digest& identity);
  RecordCipher(const RecordCipher&) = delete;

  // Tells keys apart, and tells nothing of them.
  const KeyId& id() const { return id_; }

  // A name for what begins with this block, which tells nothing to who lacks the key.
  void NameRun(const BlockHash& first, std::span<std::byte> name) const;

  // Encrypts all of `slot` before its last page, and writes that. seal.block_crc is not needed.
  void Close(const Seal& seal, std::span<std::byte> slot) const;
  // The seal in a slot's last page, or nothing: torn, damaged, of another key or another identity.
  std::optional<Seal> ReadSeal(std::span<const std::byte> page) const;
  // Its seal, with the block decrypted in place; nothing, likewise.
  std::optional<Seal> Open(std::span<std::byte> slot) const;

 private:
  struct Opened;
  std::optional<Opened> OpenPage(std::span<const std::byte> page) const;

  const DiskKey key_;
  const Sha256Digest identity_;
  KeyId id_;
};

}  // namespace baton::kv::tier
