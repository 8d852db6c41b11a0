// Encrypted records against those that Python's `cryptography` makes (make_records.py): the keys, what is
// encrypted under them and what the tags cover.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "common/base/digest.h"
#include "common/base/secret.h"
#include "engine/kv/tier/record_cipher.h"
#include "nlohmann/json.hpp"

namespace baton::kv::tier {
namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(RecordGoldenTest, OpensWhatWasEncryptedElsewhere) {
  std::ifstream file(BATON_SOURCE_DIR "/tests/golden/tier/records.json");
  const auto records = nlohmann::json::parse(file);
  ASSERT_EQ(records.size(), 3u);
  for (const auto& golden : records) {
    SCOPED_TRACE(golden["key"].get<std::string>());
    const auto bytes = [&](const char* name) { return FromHex(golden[name].get<std::string>()); };
    DiskKey key;
    Sha256Digest identity;
    std::memcpy(key.data(), bytes("key").data(), key.size());
    std::memcpy(identity.data(), bytes("identity").data(), identity.size());
    const RecordCipher cipher(key, identity);
    EXPECT_EQ(ToHex(std::as_bytes(std::span(cipher.id()))), golden["key_id"].get<std::string>());
    const std::string encrypted = bytes("encrypted_block"), page = bytes("page");
    std::vector<std::byte> slot(encrypted.size() + kPage);
    std::memcpy(slot.data(), encrypted.data(), encrypted.size());
    std::memcpy(slot.data() + encrypted.size(), page.data(), page.size());
    const auto crc = golden["page_crc"].get<uint32_t>();
    EXPECT_EQ(Crc32c(std::span(slot).subspan(encrypted.size(), kPage - sizeof(crc))), crc);
    for (size_t i = 0; i < sizeof(crc); ++i) {
      slot[slot.size() - sizeof(crc) + i] = static_cast<std::byte>(crc >> (8 * i));
    }
    const std::optional<Seal> seal = cipher.Open(slot);
    ASSERT_TRUE(seal.has_value());
    EXPECT_EQ(seal->hash.bytes(), bytes("hash"));
    EXPECT_EQ(seal->root.bytes(), bytes("root"));
    EXPECT_EQ(seal->sequence, golden["sequence"].get<uint64_t>());
    EXPECT_EQ(seal->segment, golden["segment"].get<uint64_t>());
    EXPECT_EQ(seal->slot, golden["slot"].get<uint32_t>());
    ASSERT_EQ(seal->earlier.size(), golden["earlier"].size());
    for (size_t i = 0; i < seal->earlier.size(); ++i) {
      EXPECT_EQ(seal->earlier[i].hash.bytes(), FromHex(golden["earlier"][i]["hash"].get<std::string>()));
      EXPECT_EQ(seal->earlier[i].sequence, golden["earlier"][i]["sequence"].get<uint64_t>());
    }
    const std::string block = bytes("block");
    EXPECT_EQ(std::memcmp(slot.data(), block.data(), block.size()), 0);
  }
}

}  // namespace
}  // namespace baton::kv::tier
