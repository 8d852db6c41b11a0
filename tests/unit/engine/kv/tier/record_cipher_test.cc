// Encrypted records: nobody reads them without the key or makes one that is taken for a block, and whatever
// is wrong with them, with the key or with its file is a miss.
#include "engine/kv/tier/record_cipher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/fakes/faulty_folder.h"
#include "tests/unit/engine/kv/tier/tier_blocks.h"

namespace baton::kv::tier {
namespace {

DiskKey KeyOf(int name) {
  DiskKey key;
  key.fill(static_cast<std::byte>(name));
  return key;
}

StoreOptions Options(std::vector<DiskKey> keys) {
  const Identity identity = IdentityOf();
  return {.bytes = 16 * (kPage + 4 * identity.slot_bytes()), .identity = identity, .keys = std::move(keys)};
}

class EncryptedStoreTest : public testing::Test {
 protected:
  std::unique_ptr<DiskStore> Open(std::vector<DiskKey> keys) {
    auto store = DiskStore::Open(disk_.OpenFolder(), Options(std::move(keys)));
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::vector<std::byte>& File() { return disk_.files().begin()->second->bytes; }
  std::byte* Slot(int64_t slot) { return File().data() + kPage + slot * IdentityOf().slot_bytes(); }
  bool Holds(std::span<const std::byte> bytes) {
    for (const auto& [name, file] : disk_.files()) {
      if (std::search(file->bytes.begin(), file->bytes.end(), bytes.begin(), bytes.end()) !=
          file->bytes.end())
        return true;
    }
    return false;
  }

  MemoryDisk disk_;
};

TEST_F(EncryptedStoreTest, WhatIsWrittenIsReadNowAndAfterARestart) {
  auto store = Open({KeyOf(1)});
  for (uint64_t name = 1; name <= 3; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  EXPECT_EQ(ReadBlocks(*store, 1, 5), 3);
  store = Open({KeyOf(1)});
  EXPECT_EQ(store->found().blocks, 3);
  EXPECT_EQ(store->found().unsealed_slots, 0);
  EXPECT_EQ(ReadBlocks(*store, 1, 3), 3);
  // It goes on in the same file, and around: what is written once more is opened and closed again.
  for (uint64_t name = 4; name < 80; ++name) {
    ASSERT_TRUE(AppendBlock(*store, name).ok());
    store->Touch(HashOf(name));
  }
  EXPECT_GT(store->counts().second_chances, 0);
  int64_t read = 0;
  for (uint64_t name = 1; name < 80; ++name) read += ReadBlocks(*store, name, 1);
  EXPECT_EQ(read, store->counts().blocks);
  EXPECT_EQ(store->counts().failures, DiskStore::Counts().failures);
  store->CheckTables();
}

TEST_F(EncryptedStoreTest, NothingOfABlockCanBeSeenInTheFiles) {
  const DiskKey key = KeyOf(0x5a);  // unlike the fingerprint, which lies in the header
  for (const bool encrypted : {true, false}) {
    auto store = Open(encrypted ? std::vector{key} : std::vector<DiskKey>());
    ASSERT_TRUE(AppendBlock(*store, 1).ok());
    ASSERT_TRUE(AppendBlock(*store, 2).ok());
    std::vector<std::byte> block(static_cast<size_t>(IdentityOf().block_bytes));
    for (const uint64_t name : {1, 2}) {
      FillBlock(name, block);
      for (size_t at = 0; at + 8 <= block.size(); at += 8) {
        ASSERT_EQ(Holds(std::span(block).subspan(at, 8)), !encrypted) << at;
      }
      // Nor whose it is, or of which tokens.
      for (const BlockHash& hash : {HashOf(name), RootOf(name)}) {
        EXPECT_EQ(Holds(std::as_bytes(std::span(hash.bytes()))), !encrypted);
      }
    }
    EXPECT_FALSE(Holds(key));
  }
}

TEST_F(EncryptedStoreTest, AFlipAnywhereIsAMiss) {
  const Sha256Digest identity = DigestOf(IdentityOf());
  const RecordCipher cipher(KeyOf(1), identity);
  auto store = Open({KeyOf(1)});
  ASSERT_TRUE(AppendBlock(*store, 1).ok());
  const auto slot_bytes = static_cast<size_t>(IdentityOf().slot_bytes());
  const std::vector<std::byte> record(Slot(0), Slot(0) + slot_bytes);
  for (size_t at = 0; at < record.size(); ++at) {
    auto damaged = record;
    damaged[at] ^= static_cast<std::byte>(1 << (at % 8));
    ASSERT_FALSE(cipher.Open(damaged).has_value()) << at;
    // And who can make the page's checksum right.
    if (at < slot_bytes - kPage) continue;
    const auto page = std::span(damaged).last(kPage);
    const uint32_t crc = Crc32c(page.first(kPage - sizeof(uint32_t)));
    for (size_t i = 0; i < sizeof(crc); ++i)
      page[kPage - sizeof(crc) + i] = static_cast<std::byte>(crc >> (8 * i));
    const auto seal = cipher.Open(damaged);
    // In a whole page only the checksum is not under the tag, and it was computed again.
    ASSERT_EQ(seal.has_value(), at >= slot_bytes - sizeof(crc)) << at;
  }
  auto whole = record;
  EXPECT_TRUE(cipher.Open(whole).has_value()) << "the control";
  // Through a store: before it is opened, and while it is.
  for (size_t at = 0; at < record.size(); at += 509) {
    for (const bool open : {false, true}) {
      std::copy(record.begin(), record.end(), Slot(0));
      if (open) store = Open({KeyOf(1)});
      Slot(0)[at] ^= std::byte{1};
      if (!open) store = Open({KeyOf(1)});
      ASSERT_EQ(ReadBlocks(*store, 1, 1), 0) << at;
      EXPECT_FALSE(store->contains(HashOf(1)));
    }
  }
  EXPECT_EQ(store->counts().failures[static_cast<size_t>(DiskStore::Failure::kCorrupt)], 1);
}

TEST_F(EncryptedStoreTest, SwappedRecordsAndPartsAreMisses) {
  auto store = Open({KeyOf(1)});
  ASSERT_TRUE(AppendBlock(*store, 1).ok());
  ASSERT_TRUE(AppendBlock(*store, 2).ok());
  const auto slot_bytes = static_cast<size_t>(IdentityOf().slot_bytes());
  const auto swap = [&](size_t from, size_t bytes) {
    std::swap_ranges(Slot(0) + from, Slot(0) + from + bytes, Slot(1) + from);
  };
  swap(0, slot_bytes);
  EXPECT_EQ(ReadBlocks(*store, 1, 1) + ReadBlocks(*store, 2, 1), 0);
  // A start finds them where they are now.
  store = Open({KeyOf(1)});
  EXPECT_EQ(ReadBlocks(*store, 1, 1) + ReadBlocks(*store, 2, 1), 2);
  // Under each other's seal: two blocks of one key, and not those that the seals vouch for.
  swap(0, slot_bytes - kPage);
  store = Open({KeyOf(1)});
  EXPECT_EQ(ReadBlocks(*store, 1, 1) + ReadBlocks(*store, 2, 1), 0);
}

TEST_F(EncryptedStoreTest, AnotherKeyNoneOrANewOneDropsWhatIsThere) {
  const std::vector<std::vector<DiskKey>> turns = {{KeyOf(1)}, {KeyOf(2)}, {}, {KeyOf(2)}, {}};
  Open({KeyOf(9)});
  for (const auto& keys : turns) {
    auto store = Open(keys);
    EXPECT_EQ(store->counts().blocks, 0);
    EXPECT_EQ(ReadBlocks(*store, 1, 1), 0);
    EXPECT_EQ(store->found().foreign_segments, 0);
    EXPECT_EQ(store->found().other_key_segments, &keys == &turns.front() ? 0 : 1);
    EXPECT_TRUE(disk_.files().empty()) << "nothing is left in the clear";
    ASSERT_TRUE(AppendBlock(*store, 1).ok());
    EXPECT_EQ(ReadBlocks(*store, 1, 1), 1);
  }
  EXPECT_EQ(Open({})->counts().blocks, 1) << "the control";
}

TEST_F(EncryptedStoreTest, AnOlderKeyIsReadAndNoLongerWrittenWith) {
  auto store = Open({KeyOf(1)});
  ASSERT_TRUE(AppendBlock(*store, 1).ok());
  store = Open({KeyOf(2), KeyOf(1)});
  EXPECT_EQ(ReadBlocks(*store, 1, 1), 1);
  ASSERT_TRUE(AppendBlock(*store, 2).ok());
  EXPECT_EQ(disk_.files().size(), 2u) << "a file has one key";
  EXPECT_EQ(ReadBlocks(*store, 2, 1), 1);
  // A used block is written once more, under the new key.
  store->Touch(HashOf(1));
  for (uint64_t name = 100; store->counts().second_chances == 0; ++name) {
    ASSERT_LT(name, 300u);
    ASSERT_TRUE(AppendBlock(*store, name).ok());
  }
  store = Open({KeyOf(2)});
  EXPECT_EQ(store->found().other_key_segments, 0);
  EXPECT_EQ(ReadBlocks(*store, 1, 1), 1);
  store->CheckTables();
}

TEST_F(EncryptedStoreTest, NoTwoRecordsShareKeysWhateverTheDiskGoesBackTo) {
  // The same block into the same slot of the same file, after restarts from an old copy of the disk.
  std::set<std::string> salts, blocks;
  auto before = Open({KeyOf(1)});
  ASSERT_TRUE(AppendBlock(*before, 1).ok());
  before.reset();
  const auto copy = File();
  for (int turn = 0; turn < 20; ++turn) {
    File() = copy;
    auto store = Open({KeyOf(1)});
    ASSERT_TRUE(AppendBlock(*store, 2).ok());
    ASSERT_EQ(disk_.files().size(), 1u);
    const auto* slot = reinterpret_cast<const char*>(Slot(1));
    blocks.emplace(slot, 16);
    salts.emplace(slot + IdentityOf().slot_bytes() - kPage + 44, 32);
  }
  EXPECT_EQ(salts.size(), 20u);
  EXPECT_EQ(blocks.size(), 20u);
}

TEST(RecordCipherTest, ARecordOfAnotherKeyModelOrTenantIsNotOpened) {
  const Sha256Digest identity = DigestOf(IdentityOf());
  const RecordCipher cipher(KeyOf(1), identity);
  PageBuffer slot(IdentityOf().slot_bytes());
  const Seal seal{.hash = HashOf(1), .root = RootOf(1), .sequence = 7, .block_crc = 0, .identity = identity};
  cipher.Close(seal, slot.bytes());
  const auto opens = [&](const RecordCipher& by) {
    PageBuffer copy(slot.size());
    std::copy(slot.bytes().begin(), slot.bytes().end(), copy.bytes().begin());
    return by.Open(copy.bytes()).has_value();
  };
  EXPECT_TRUE(opens(cipher));
  EXPECT_FALSE(opens(RecordCipher(KeyOf(2), identity)));
  EXPECT_FALSE(opens(RecordCipher(KeyOf(1), DigestOf(IdentityOf(2)))));
  EXPECT_NE(cipher.id(), RecordCipher(KeyOf(2), identity).id());
  EXPECT_NE(cipher.id(), KeyId());
  const auto read = cipher.ReadSeal(slot.bytes().last(kPage));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->hash, seal.hash);
  EXPECT_EQ(read->root, seal.root);
  EXPECT_EQ(read->sequence, seal.sequence);
}

TEST(ReadDiskKeysTest, TakesOneKeyOrSeveralAndSaysWhatIsWrong) {
  const std::string path = absl::StrCat(testing::TempDir(), "/disk-key-", getpid());
  const auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return ReadDiskKeys(path);
  };
  const std::string one(64, '1'), two = "AbCdEf" + std::string(58, '0');
  auto keys = read(absl::StrCat(one, "\n"));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys, testing::ElementsAre(KeyOf(0x11)));
  keys = read(absl::StrCat(two, ",", one));
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0][2], std::byte{0xef});
  EXPECT_EQ((*keys)[1], KeyOf(0x11));
  const std::string many =
      absl::StrCat(one, ",", one, ",", one, ",", one, ",", one, ",", one, ",", one, ",", one);
  EXPECT_TRUE(read(many).ok());
  for (const std::string& bad :
       {std::string(), one.substr(1), absl::StrCat(one, "1"), absl::StrCat(one, ","),
        absl::StrCat(one, "\n", one), absl::StrCat(one.substr(1), "g"), absl::StrCat(many, ",", one)}) {
    const auto refused = read(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << bad;
    EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr(path));
    EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("openssl rand -hex 32"));
    EXPECT_THAT(std::string(refused.status().message()), testing::Not(testing::HasSubstr("1111")));
  }
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsNotFound(ReadDiskKeys(path).status()));
}

}  // namespace
}  // namespace baton::kv::tier
