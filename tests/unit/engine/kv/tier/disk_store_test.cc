// The contract of the store: what is read is what was written, or a miss, whatever the disk does and whenever
// the process dies.
#include "engine/kv/tier/disk_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "tests/fakes/faulty_folder.h"
#include "tests/fuzz/disk_store_operations.h"
#include "tests/seed.h"
#include "tests/unit/engine/kv/tier/tier_blocks.h"

namespace baton::kv::tier {
namespace {

namespace fs = std::filesystem;
using Failure = DiskStore::Failure;

std::string FreshFolder(const std::string& name) {
  const std::string path = testing::TempDir() + "/tier-" + std::to_string(getpid()) + "-" + name;
  fs::remove_all(path);
  return path;
}

int64_t FailuresOf(const DiskStore& store, Failure failure) {
  return store.counts().failures[static_cast<size_t>(failure)];
}

// 16 segments of `slots` slots.
StoreOptions Options(int64_t slots = 4, const Identity& identity = IdentityOf()) {
  return {.bytes = 16 * (kPage + slots * identity.slot_bytes()), .identity = identity};
}

class DiskStoreTest : public testing::Test {
 protected:
  std::unique_ptr<DiskStore> Open(const StoreOptions& options = Options()) {
    auto store = DiskStore::Open(MakeFaultyFolder(disk_.OpenFolder(), faults_), options);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  // The `slot`-th slot of the first file.
  std::byte* Slot(int64_t slot) {
    return disk_.files().begin()->second->bytes.data() + kPage + slot * IdentityOf().slot_bytes();
  }

  MemoryDisk disk_;
  Faults faults_;
};

TEST_F(DiskStoreTest, WhatIsWrittenIsReadNowAndAfterARestart) {
  auto store = Open();
  EXPECT_EQ(store->Match(HashesOf(1, 3)), 0);
  for (uint64_t name = 1; name <= 3; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  EXPECT_EQ(store->Match(HashesOf(1, 5)), 3);
  EXPECT_EQ(ReadBlocks(*store, 1, 5), 3) << "they lie side by side: one read";
  EXPECT_EQ(ReadBlocks(*store, 9, 1), 0);
  store->CheckTables();
  store = Open();
  EXPECT_EQ(store->found().blocks, 3);
  EXPECT_EQ(store->found().unsealed_slots, 0);
  EXPECT_EQ(ReadBlocks(*store, 1, 3), 3);
  // It goes on in the same file.
  ASSERT_TRUE(AppendBlock(*store, 4).ok());
  EXPECT_EQ(disk_.files().size(), 1u);
  EXPECT_EQ(ReadBlocks(*store, 1, 4), 4);
  store->CheckTables();
}

TEST_F(DiskStoreTest, TheCapIsKeptAndTheOldestGoFirst) {
  const StoreOptions options = Options();
  auto store = Open(options);
  for (uint64_t name = 0; name < 300; ++name) {
    ASSERT_TRUE(AppendBlock(*store, name).ok());
    ASSERT_LE(disk_.bytes(), options.bytes);
    store->CheckTables();
  }
  EXPECT_EQ(store->Match(HashesOf(0, 1)), 0);
  EXPECT_EQ(ReadBlocks(*store, 299, 1), 1);
  EXPECT_GE(store->counts().blocks, 15 * 4 - 4);
  EXPECT_EQ(store->counts().second_chances, 0);
  // A smaller cap, at the next start.
  store = Open({.bytes = options.bytes / 2, .identity = options.identity});
  EXPECT_LE(disk_.bytes(), options.bytes / 2);
  EXPECT_EQ(ReadBlocks(*store, 299, 1), 1);
  store->CheckTables();
}

TEST_F(DiskStoreTest, WhatWasUsedSinceStaysForAnotherRound) {
  auto store = Open();
  for (uint64_t name = 0; name < 8; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  ASSERT_EQ(ReadBlocks(*store, 1, 1), 1);
  store->Touch(HashOf(2));
  for (uint64_t name = 100; name < 156; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  EXPECT_EQ(ReadBlocks(*store, 0, 1), 0);
  EXPECT_EQ(ReadBlocks(*store, 3, 1), 0);
  EXPECT_EQ(store->counts().second_chances, 2);
  EXPECT_EQ(store->Match(HashesOf(1, 2)), 2);
  // Nobody uses them in that round.
  for (uint64_t name = 200; name < 270; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  EXPECT_EQ(store->Match(HashesOf(1, 1)), 0);
  store->CheckTables();
}

TEST_F(DiskStoreTest, AFlippedBitIsAMissAndDropsTheRecord) {
  auto store = Open();
  for (uint64_t name = 1; name <= 3; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  Slot(1)[1234] ^= std::byte{1};
  EXPECT_EQ(ReadBlocks(*store, 1, 3), 1);
  EXPECT_EQ(FailuresOf(*store, Failure::kCorrupt), 1);
  EXPECT_FALSE(store->contains(HashOf(2)));
  EXPECT_TRUE(store->contains(HashOf(3)));
  const BlockPool::Changes changes = store->TakeChanges();
  EXPECT_THAT(changes.stored, testing::UnorderedElementsAre(HashOf(1), HashOf(3)));
  EXPECT_THAT(changes.evicted, testing::ElementsAre(HashOf(2))) << "who has asked meanwhile knows of it";
  // It can be written again.
  ASSERT_TRUE(AppendBlock(*store, 2).ok());
  EXPECT_EQ(ReadBlocks(*store, 2, 1), 1);
  // And a bit that flips on the way.
  faults_.flipped_reads = 1;
  EXPECT_EQ(ReadBlocks(*store, 3, 1), 0);
  store->CheckTables();
}

TEST_F(DiskStoreTest, SwappedRecordsAreMisses) {
  auto store = Open();
  ASSERT_TRUE(AppendBlock(*store, 1).ok());
  ASSERT_TRUE(AppendBlock(*store, 2).ok());
  const auto slot_bytes = static_cast<size_t>(IdentityOf().slot_bytes());
  std::swap_ranges(Slot(0), Slot(0) + slot_bytes, Slot(1));
  EXPECT_EQ(ReadBlocks(*store, 1, 1), 0);
  EXPECT_EQ(ReadBlocks(*store, 2, 1), 0);
  // A start finds them where they are now.
  store = Open();
  EXPECT_EQ(ReadBlocks(*store, 1, 1), 1);
  EXPECT_EQ(ReadBlocks(*store, 2, 1), 1);
  // A block under another block's seal is found under neither hash.
  const auto block_bytes = static_cast<size_t>(IdentityOf().block_bytes);
  std::swap_ranges(Slot(0), Slot(0) + block_bytes, Slot(1));
  store = Open();
  EXPECT_EQ(ReadBlocks(*store, 1, 1), 0);
  EXPECT_EQ(ReadBlocks(*store, 2, 1), 0);
}

TEST_F(DiskStoreTest, ATruncatedSegmentKeepsWhatIsWhole) {
  auto store = Open();
  for (uint64_t name = 1; name <= 4; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  auto& bytes = disk_.files().begin()->second->bytes;
  bytes.resize(static_cast<size_t>(kPage + 2 * IdentityOf().slot_bytes() + 100));
  EXPECT_EQ(ReadBlocks(*store, 1, 4), 1) << "the read of all fails, that of the first does not";
  EXPECT_EQ(ReadBlocks(*store, 3, 1), 0);
  store = Open();
  EXPECT_EQ(store->found().blocks, 2);
  EXPECT_EQ(ReadBlocks(*store, 1, 4), 2);
  ASSERT_TRUE(AppendBlock(*store, 5).ok());
  EXPECT_EQ(ReadBlocks(*store, 5, 1), 1);
  bytes.resize(10);
  store = Open();
  EXPECT_EQ(store->found().foreign_segments, 1);
  EXPECT_EQ(ReadBlocks(*store, 5, 1), 1);
  store->CheckTables();
}

TEST_F(DiskStoreTest, AReadErrorIsAMiss) {
  auto store = Open();
  ASSERT_TRUE(AppendBlock(*store, 1).ok());
  faults_.bad_reads = 1;
  EXPECT_EQ(ReadBlocks(*store, 1, 1), 0);
  EXPECT_EQ(FailuresOf(*store, Failure::kRead), 1);
  EXPECT_FALSE(store->contains(HashOf(1)));
}

TEST_F(DiskStoreTest, AWriteErrorLosesThatBlockAlone) {
  auto store = Open();
  ASSERT_TRUE(AppendBlock(*store, 1).ok());
  faults_.bad_writes = 1;
  EXPECT_TRUE(absl::IsUnavailable(AppendBlock(*store, 2)));
  EXPECT_FALSE(store->contains(HashOf(2)));
  ASSERT_TRUE(AppendBlock(*store, 3).ok());
  EXPECT_EQ(ReadBlocks(*store, 1, 1) + ReadBlocks(*store, 3, 1), 2);
  // A file that takes nothing more is left.
  faults_.bad_writes = 3;
  for (uint64_t name = 4; name < 7; ++name) EXPECT_FALSE(AppendBlock(*store, name).ok());
  ASSERT_TRUE(AppendBlock(*store, 7).ok());
  EXPECT_EQ(disk_.files().size(), 2u);
  EXPECT_EQ(FailuresOf(*store, Failure::kWrite), 4);
  store->CheckTables();
}

TEST_F(DiskStoreTest, AFullDiskGivesUpTheOldest) {
  auto store = Open();
  for (uint64_t name = 0; name < 8; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  faults_.full = true;
  EXPECT_TRUE(absl::IsResourceExhausted(AppendBlock(*store, 8)));
  EXPECT_EQ(disk_.files().size(), 1u);
  EXPECT_EQ(store->Match(HashesOf(0, 1)), 0);
  EXPECT_EQ(ReadBlocks(*store, 4, 4), 4);
  EXPECT_GE(FailuresOf(*store, Failure::kFull), 1);
  faults_.full = false;
  ASSERT_TRUE(AppendBlock(*store, 8).ok());
  EXPECT_EQ(ReadBlocks(*store, 8, 1), 1);
  store->CheckTables();
}

TEST_F(DiskStoreTest, AnotherModelOrLayoutIsDropped) {
  auto store = Open();
  ASSERT_TRUE(AppendBlock(*store, 1).ok());
  Identity other_layout = IdentityOf();
  other_layout.layout.fill(8);
  for (const Identity& identity : {IdentityOf(2), other_layout, IdentityOf(1, 4000), IdentityOf()}) {
    auto next = Open(Options(4, identity));
    EXPECT_EQ(next->found().foreign_segments, 1);
    EXPECT_EQ(next->counts().blocks, 0);
    PageBuffer slot(identity.slot_bytes());
    EXPECT_EQ(next->ReadRun(HashesOf(1, 1), slot), 0);
    ASSERT_TRUE(AppendBlock(*next, 1).ok());
  }
  // The control: the same again.
  EXPECT_EQ(Open()->counts().blocks, 1);
}

TEST_F(DiskStoreTest, AStartReadsOneSealForManySlots) {
  // 16 segments of 400 slots, 2 full ones and a part of a third.
  const StoreOptions options = Options(400, IdentityOf(1, 64));
  auto store = Open(options);
  for (uint64_t name = 0; name < 1000; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  // One goes, and comes back in a later segment.
  const std::string first = disk_.files().begin()->first;
  disk_.files()[first]->bytes[static_cast<size_t>(kPage + 7 * options.identity.slot_bytes())] ^= std::byte{1};
  EXPECT_EQ(ReadBlocks(*store, 7, 1), 0);
  ASSERT_TRUE(AppendBlock(*store, 7).ok());
  int reads = 0;
  faults_.on_read = [&] { ++reads; };
  store = Open(options);
  faults_.on_read = [] {};
  EXPECT_EQ(store->found().blocks, 1000);
  EXPECT_EQ(store->found().unsealed_slots, 0);
  // 3 headers, 199 slots that were never written, and a seal for each 161 slots.
  EXPECT_EQ(reads, 3 + 199 + 3 + 3 + 2);
  for (uint64_t name = 0; name < 1000; ++name) ASSERT_EQ(ReadBlocks(*store, name, 1), 1) << name;
  store->CheckTables();
  ASSERT_TRUE(AppendBlock(*store, 2000).ok());
  EXPECT_EQ(disk_.files().size(), 3u) << "it goes on where it was";
}

TEST_F(DiskStoreTest, WhatASealTellsOfOthersHoldsWhereItLies) {
  auto store = Open();
  for (uint64_t name = 1; name <= 4; ++name) ASSERT_TRUE(AppendBlock(*store, name).ok());
  // The last record, which tells of the three before it, in the place of the third.
  const auto slot_bytes = static_cast<size_t>(IdentityOf().slot_bytes());
  std::copy(Slot(3), Slot(3) + slot_bytes, Slot(2));
  std::fill(Slot(3), Slot(3) + slot_bytes, std::byte{0});
  store = Open();
  EXPECT_EQ(store->found().blocks, 3);
  EXPECT_EQ(ReadBlocks(*store, 1, 1) + ReadBlocks(*store, 2, 1) + ReadBlocks(*store, 4, 1), 3);
  // A slot that is another than the next one tells: a miss when it is read.
  std::copy(Slot(2), Slot(2) + slot_bytes, Slot(0));
  store = Open();
  EXPECT_TRUE(store->contains(HashOf(1)));
  EXPECT_EQ(ReadBlocks(*store, 1, 1), 0);
  EXPECT_EQ(FailuresOf(*store, Failure::kCorrupt), 1);
  EXPECT_EQ(ReadBlocks(*store, 2, 1) + ReadBlocks(*store, 4, 1), 2);
  store->CheckTables();
}

TEST_F(DiskStoreTest, TooLittleDiskIsRefused) {
  const auto store = DiskStore::Open(disk_.OpenFolder(), {.bytes = 40'000, .identity = IdentityOf()});
  EXPECT_TRUE(absl::IsResourceExhausted(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), testing::HasSubstr("--kv-disk-size"));
}

TEST_F(DiskStoreTest, ChangesAddUpToWhatIsStored) {
  auto store = Open();
  std::set<BlockHash> known;
  for (uint64_t name = 0; name < 200; ++name) {
    ASSERT_TRUE(AppendBlock(*store, name % 90).ok());
    if (name % 7 != 0) continue;
    const BlockPool::Changes changes = store->TakeChanges();
    ASSERT_FALSE(changes.reset);
    for (const BlockHash& hash : changes.evicted) known.erase(hash);
    for (const BlockHash& hash : changes.stored) known.insert(hash);
    const auto stored = store->Stored();
    EXPECT_EQ(known, std::set<BlockHash>(stored.begin(), stored.end()));
  }
}

// In memory: dies at each change of a run that fills the cap, at a few lengths of the last write.
TEST_F(DiskStoreTest, ADeathAtAnyWriteLosesNoMoreThanThatWrite) {
  int64_t changes = 0;
  for (bool died = true; died; ++changes) {
    for (const int64_t torn :
         {int64_t{0}, int64_t{4096}, IdentityOf().slot_bytes() - kPage, IdentityOf().slot_bytes() - 100}) {
      disk_.files().clear();
      faults_.dead = false;
      faults_.changes_left = -1;
      auto store = Open(Options(2));
      faults_.changes_left = changes;
      faults_.torn_bytes = torn;
      for (uint64_t name = 0; name < 60 && !faults_.dead; ++name) {
        if (name > 4) ReadBlocks(*store, name - 3, 1);  // some of them have a second chance
        AppendBlock(*store, name).IgnoreError();
      }
      died = faults_.dead;
      const int64_t before = store->counts().blocks;
      faults_.dead = false;
      faults_.changes_left = -1;
      store = Open(Options(2));
      store->CheckTables();
      // All blocks that could be found before can be found now, and a segment that was about to go.
      EXPECT_GE(store->counts().blocks, before) << changes;
      int64_t read = 0;
      for (uint64_t name = 0; name < 60; ++name) read += ReadBlocks(*store, name, 1);
      EXPECT_EQ(read, store->found().blocks);
      EXPECT_EQ(FailuresOf(*store, Failure::kCorrupt), 0) << "a torn record has no seal";
      ASSERT_TRUE(AppendBlock(*store, 1000).ok());
      EXPECT_EQ(ReadBlocks(*store, 1000, 1), 1);
      store->CheckTables();
      EXPECT_LE(disk_.bytes(), Options(2).bytes);
    }
  }
  EXPECT_GT(changes, 100);
}

TEST(DiskStoreFuzzTest, HoldsOverRandomOperations) {
  const uint32_t seed = static_cast<uint32_t>(TestSeed());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int64_t done = 0;
  while (done < 20'000) {
    std::vector<uint8_t> bytes(2000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const auto run = RunDiskStoreOperations(bytes);
    ASSERT_TRUE(run.ok()) << run.status();
    done += *run;
  }
}

TEST(DiskStoreOnDiskTest, AKilledProcessLeavesOnlyWhatWasWritten) {
  const std::string path = FreshFolder("killed");
  int64_t kills = 0;
  for (int64_t changes = 0;; changes += 3) {
    fs::remove_all(path);
    const pid_t child = fork();
    if (child == 0) {
      Faults faults;
      faults.changes_left = changes;
      faults.torn_bytes = 4096 * (changes % 4);
      faults.die = [] { kill(getpid(), SIGKILL); };
      auto folder = OpenPosixFolder(path);
      if (!folder.ok()) _exit(2);
      auto store = DiskStore::Open(MakeFaultyFolder(*std::move(folder), faults), Options(2));
      if (!store.ok()) _exit(3);
      for (uint64_t name = 0; name < 60; ++name) {
        if (name > 4) ReadBlocks(**store, name - 3, 1);
        if (!AppendBlock(**store, name).ok()) _exit(4);
      }
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    auto folder = OpenPosixFolder(path);
    ASSERT_TRUE(folder.ok()) << folder.status();
    auto store = DiskStore::Open(*std::move(folder), Options(2));
    ASSERT_TRUE(store.ok()) << store.status();
    int64_t read = 0;
    for (uint64_t name = 0; name < 60; ++name) read += ReadBlocks(**store, name, 1);
    EXPECT_EQ(read, (*store)->found().blocks);
    (*store)->CheckTables();
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
    ++kills;
  }
  EXPECT_GT(kills, 20);
  fs::remove_all(path);
}

TEST(PosixFolderTest, OneProcessAtATime) {
  const std::string path = FreshFolder("locked");
  auto folder = OpenPosixFolder(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto second = OpenPosixFolder(path);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr("another worker uses it"));
  folder->reset();
  EXPECT_TRUE(OpenPosixFolder(path).ok()) << "the control";
  fs::remove_all(path);
}

TEST(PosixFolderTest, FoldersAboveAreMade) {
  const std::string above = FreshFolder("above");
  EXPECT_TRUE(OpenPosixFolder(above + "/node/worker").ok());
  std::ofstream(above + "/file") << "no folder";
  const auto blocked = OpenPosixFolder(above + "/file/node/worker");
  EXPECT_THAT(
      std::string(blocked.status().message()),
      testing::AllOf(testing::HasSubstr(above + "/file/node/worker"), testing::HasSubstr("Not a directory")));
  fs::remove_all(above);
}

TEST(PosixFolderTest, NeitherLinksNorFoldersThatOthersSee) {
  const std::string path = FreshFolder("open"), link = FreshFolder("link");
  ASSERT_TRUE(OpenPosixFolder(path).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  fs::create_directory_symlink(path, link);
  EXPECT_FALSE(OpenPosixFolder(link).ok());
  chmod(path.c_str(), 0755);
  const auto open = OpenPosixFolder(path);
  EXPECT_TRUE(absl::IsFailedPrecondition(open.status()));
  EXPECT_THAT(std::string(open.status().message()), testing::HasSubstr("mode 755"));
  chmod(path.c_str(), 0700);
  // A link in place of a segment is not followed either.
  auto folder = OpenPosixFolder(path);
  ASSERT_TRUE(folder.ok());
  fs::create_symlink("/etc/passwd", path + "/segment-000000000001");
  EXPECT_FALSE((*folder)->Open("segment-000000000001").ok());
  auto store = DiskStore::Open(*std::move(folder), Options());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->found().foreign_segments, 1);
  EXPECT_TRUE(fs::exists("/etc/passwd"));
  fs::remove_all(path);
  fs::remove(link);
}

TEST(PosixFolderTest, FilesOfOthersStay) {
  const std::string path = FreshFolder("foreign");
  ASSERT_TRUE(OpenPosixFolder(path).ok());
  close(open((path + "/notes.txt").c_str(), O_CREAT | O_WRONLY, 0600));
  auto store = DiskStore::Open(OpenPosixFolder(path).value(), Options());
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(AppendBlock(**store, 1).ok());
  EXPECT_EQ(ReadBlocks(**store, 1, 1), 1);
  EXPECT_TRUE(fs::exists(path + "/notes.txt"));
  fs::remove_all(path);
}

}  // namespace
}  // namespace baton::kv::tier
