#include "engine/kv/tier/record_cipher.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/secret.h"
#include "common/base/status.h"
#include "engine/kv/tier/page_fields.h"

namespace baton::kv::tier {
namespace {

// A seal, encrypted:
//
//   magic version identity[32] salt[32]   hash[16] root[16] sequence[8] block_tag[16] surroundings   tag[16]
//   crc
//   `-------- in the clear -----------'   `------------ encrypted, all of the page ------------'
//
// The tag covers both parts. The block's tag covers all before itself, as it is before it is encrypted.
constexpr std::string_view kMagic = "BATONKVE";
constexpr std::string_view kId = "baton/kv/tier/2 id", kBlock = "baton/kv/tier/2 block",
                           kSeal = "baton/kv/tier/2 seal", kRun = "baton/kv/tier/2 run";
constexpr size_t kSaltBytes = 32;
constexpr size_t kSaltAt = kMagic.size() + sizeof(kVersion) + sizeof(Sha256Digest);
constexpr size_t kFieldsAt = kSaltAt + kSaltBytes;
constexpr size_t kBlockTagAt = kFieldsAt + 2 * BlockHash::kBytes + sizeof(uint64_t);
constexpr size_t kTagAt = kPage - PageWriter::kSum - kAeadTagBytes;
// Keys for one start; each is one more to try on every file.
constexpr size_t kMostKeys = 8;

// A key and a nonce, for one message, and gone with the object.
class MessageKey {
 public:
  MessageKey(std::span<const std::byte> key, std::span<const std::byte> salt, std::string_view purpose,
             const Sha256Digest& identity, std::string_view root = {}) {
    std::string info(purpose);
    info.append(reinterpret_cast<const char*>(identity.data()), identity.size());
    info.append(root);
    HkdfSha256(key, salt, std::as_bytes(std::span(info)), bytes_);
  }
  ~MessageKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }
  MessageKey(const MessageKey&) = delete;

  std::span<const std::byte> key() const { return std::span(bytes_).first(kAeadKeyBytes); }
  std::span<const std::byte> nonce() const { return std::span(bytes_).last(kAeadNonceBytes); }

 private:
  std::array<std::byte, kAeadKeyBytes + kAeadNonceBytes> bytes_;
};

std::span<std::byte> FieldsOf(std::span<std::byte> page) {
  return page.subspan(kFieldsAt, kTagAt - kFieldsAt);
}

}  // namespace

struct RecordCipher::Opened {
  Seal seal;
  AeadTag block_tag{};
  // All that the block's tag covers beside the block.
  std::array<std::byte, kBlockTagAt> associated{};
  std::span<const std::byte> salt() const { return std::span(associated).subspan(kSaltAt, kSaltBytes); }
};

DiskKey::~DiskKey() { OPENSSL_cleanse(data(), size()); }

absl::StatusOr<std::vector<DiskKey>> ReadDiskKeys(const std::string& path) {
  constexpr size_t kDigits = 2 * kAeadKeyBytes;
  BATON_ASSIGN_OR_RETURN(std::string text, ReadSecretFile(path, "disk key", 0));
  std::vector<DiskKey> keys;
  bool good = true;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    good = good && word.size() == kDigits && keys.size() < kMostKeys &&
           std::all_of(word.begin(), word.end(), absl::ascii_isxdigit);
    if (!good) break;
    const auto digit = [&](size_t at) {
      const char c = absl::ascii_tolower(static_cast<unsigned char>(word[at]));
      return c <= '9' ? c - '0' : c - 'a' + 10;
    };
    DiskKey& key = keys.emplace_back();
    for (size_t i = 0; i < key.size(); ++i)
      key[i] = static_cast<std::byte>(digit(2 * i) * 16 + digit(2 * i + 1));
  }
  OPENSSL_cleanse(text.data(), text.size());
  if (good) return keys;
  return absl::InvalidArgumentError(
      fmt::format("{}: a disk key is {} hex digits, as of `openssl rand -hex {}`; after it up to {} older "
                  "ones may follow, with commas between",
                  path, kDigits, kAeadKeyBytes, kMostKeys - 1));
}

RecordCipher::RecordCipher(const DiskKey& key, const Sha256Digest& identity)
    : key_(key), identity_(identity) {
  HkdfSha256(key_, {}, std::as_bytes(std::span(kId)), std::as_writable_bytes(std::span(id_)));
}

void RecordCipher::NameRun(const BlockHash& first, std::span<std::byte> name) const {
  std::string info(kRun);
  info.append(reinterpret_cast<const char*>(identity_.data()), identity_.size());
  info.append(first.bytes());
  HkdfSha256(key_, {}, std::as_bytes(std::span(info)), name);
}

void RecordCipher::Close(const Seal& seal, std::span<std::byte> slot) const {
  BATON_CHECK(seal.identity == identity_ && slot.size() > static_cast<size_t>(kPage));
  const auto page = slot.last(kPage);
  const auto block = slot.first(slot.size() - kPage);
  std::array<std::byte, kSaltBytes> salt;
  BATON_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(salt.data()), kSaltBytes) == 1) << "no randomness";
  PageWriter writer(page, kMagic);
  writer.Bytes(identity_.data(), identity_.size());
  writer.Bytes(salt.data(), salt.size());
  BATON_CHECK_EQ(writer.at(), kFieldsAt);
  writer.Bytes(seal.hash.bytes().data(), BlockHash::kBytes);
  writer.Bytes(seal.root.bytes().data(), BlockHash::kBytes);
  writer.Number(seal.sequence, sizeof(seal.sequence));
  BATON_CHECK_EQ(writer.at(), kBlockTagAt);
  const MessageKey block_key(key_, salt, kBlock, identity_, seal.root.bytes());
  const AeadTag block_tag = Aes256GcmSeal(block_key.key(), block_key.nonce(), page.first(kBlockTagAt), block);
  writer.Bytes(block_tag.data(), block_tag.size());
  writer.Surroundings(seal);
  BATON_CHECK(writer.at() <= kTagAt);
  const MessageKey seal_key(key_, salt, kSeal, identity_);
  const AeadTag tag = Aes256GcmSeal(seal_key.key(), seal_key.nonce(), page.first(kFieldsAt), FieldsOf(page));
  std::copy(tag.begin(), tag.end(), page.begin() + kTagAt);
  writer.End();
}

std::optional<RecordCipher::Opened> RecordCipher::OpenPage(std::span<const std::byte> page) const {
  PageReader reader(page, kMagic);
  if (!reader.good()) return std::nullopt;
  Opened opened;
  reader.Bytes(opened.seal.identity.data(), opened.seal.identity.size());
  if (opened.seal.identity != identity_) return std::nullopt;
  // The page, decrypted.
  std::array<std::byte, kTagAt> fields;
  std::copy_n(page.begin(), fields.size(), fields.begin());
  AeadTag tag;
  std::copy_n(page.begin() + kTagAt, tag.size(), tag.begin());
  const auto clear = std::span(fields).first(kFieldsAt);
  const auto encrypted = std::span(fields).subspan(kFieldsAt);
  const MessageKey key(key_, clear.subspan(kSaltAt, kSaltBytes), kSeal, identity_);
  if (!Aes256GcmOpen(key.key(), key.nonce(), clear, encrypted, tag)) return std::nullopt;
  PageReader opened_reader(fields, kFieldsAt);
  opened.seal.hash = opened_reader.Hash();
  opened.seal.root = opened_reader.Hash();
  opened.seal.sequence = opened_reader.Number(sizeof(opened.seal.sequence));
  opened_reader.Bytes(opened.block_tag.data(), opened.block_tag.size());
  opened_reader.Surroundings(&opened.seal);
  std::copy_n(fields.begin(), opened.associated.size(), opened.associated.begin());
  return opened;
}

std::optional<Seal> RecordCipher::ReadSeal(std::span<const std::byte> page) const {
  const std::optional<Opened> opened = OpenPage(page);
  if (!opened.has_value()) return std::nullopt;
  return opened->seal;
}

std::optional<Seal> RecordCipher::Open(std::span<std::byte> slot) const {
  const std::optional<Opened> opened = OpenPage(slot.last(kPage));
  if (!opened.has_value()) return std::nullopt;
  const MessageKey key(key_, opened->salt(), kBlock, identity_, opened->seal.root.bytes());
  const auto block = slot.first(slot.size() - kPage);
  if (!Aes256GcmOpen(key.key(), key.nonce(), opened->associated, block, opened->block_tag)) {
    return std::nullopt;
  }
  return opened->seal;
}

}  // namespace baton::kv::tier
