#include "common/base/aead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/base/secret.h"

namespace baton {
namespace {

std::vector<std::byte> Bytes(const std::string& hex) {
  const std::string text = absl::HexStringToBytes(hex);
  std::vector<std::byte> bytes(text.size());
  std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

TEST(HkdfSha256Test, MatchesRfc5869) {
  const struct {
    std::string key, salt, info, out;
  } kCases[] = {
      {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9",
       "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
      {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313"
       "23334"
       "35363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f",
       "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f90919"
       "29394"
       "95969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
       "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e"
       "2e3e4"
       "e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
       "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da327"
       "5600c"
       "2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
      {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "",
       "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
  };
  for (const auto& known : kCases) {
    std::vector<std::byte> out(known.out.size() / 2);
    HkdfSha256(Bytes(known.key), Bytes(known.salt), Bytes(known.info), out);
    EXPECT_EQ(ToHex(out), known.out);
  }
}

// Test case 16 of McGrew and Viega, "The Galois/Counter Mode of Operation".
TEST(Aes256GcmTest, MatchesTheKnownAnswer) {
  const auto key = Bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const auto nonce = Bytes("cafebabefacedbaddecaf888");
  const auto associated = Bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const auto plain = Bytes(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aed"
      "f5"
      "aa0de657ba637b39");
  auto bytes = plain;
  const AeadTag tag = Aes256GcmSeal(key, nonce, associated, bytes);
  EXPECT_EQ(ToHex(bytes),
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
            "c5f61e6393"
            "ba7a0abcc9f662");
  EXPECT_EQ(ToHex(tag), "76fc6ece0f4e1768cddf8853bb2d551b");
  EXPECT_TRUE(Aes256GcmOpen(key, nonce, associated, bytes, tag));
  EXPECT_EQ(bytes, plain);
}

TEST(Aes256GcmTest, OpensNothingElse) {
  auto key = Bytes(std::string(64, '1')), nonce = Bytes(std::string(24, '2')), associated = Bytes("0102");
  const std::vector<std::byte> plain(100, std::byte{7});
  auto sealed = plain;
  AeadTag tag = Aes256GcmSeal(key, nonce, associated, sealed);
  const auto opens = [&] {
    auto bytes = sealed;
    const bool opened = Aes256GcmOpen(key, nonce, associated, bytes, tag);
    EXPECT_EQ(bytes, opened ? plain : std::vector<std::byte>(plain.size()));
    return opened;
  };
  ASSERT_TRUE(opens());
  for (std::byte* byte : {&key[31], &nonce[0], &associated[1], &sealed[0], &sealed[99], &tag[15]}) {
    *byte ^= std::byte{1};
    EXPECT_FALSE(opens());
    *byte ^= std::byte{1};
  }
  EXPECT_TRUE(opens()) << "the control";
}

}  // namespace
}  // namespace baton
