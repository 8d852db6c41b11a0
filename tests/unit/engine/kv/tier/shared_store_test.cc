// The contract of a folder that several workers have: what one publishes the others read, bit for bit or not
// at all, whatever happens to the files, whoever dies, and however many write and remove at once. Real files.
#include "engine/kv/tier/shared_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "engine/kv/tier/patient_folder.h"
#include "tests/fakes/faulty_folder.h"
#include "tests/patience.h"
#include "tests/seed.h"
#include "tests/unit/engine/kv/tier/tier_blocks.h"

namespace baton::kv::tier {
namespace {

namespace fs = std::filesystem;
using Failure = BlockStore::Failure;

constexpr int64_t kRun = 4;  // blocks

int64_t FileBytes(int64_t blocks) { return kPage + blocks * IdentityOf().slot_bytes(); }

SharedOptions SharedFor(int64_t runs = 64, uint8_t model = 1, std::vector<DiskKey> keys = {}) {
  return {.bytes = runs * FileBytes(kRun),
          .identity = IdentityOf(model),
          .keys = std::move(keys),
          .run_bytes = FileBytes(kRun),
          .touch = absl::ZeroDuration()};
}

DiskKey SharedKeyOf(uint8_t byte) {
  DiskKey key;
  key.fill(std::byte{byte});
  return key;
}

class SharedStoreTest : public testing::Test {
 protected:
  SharedStoreTest() : path_(testing::TempDir() + "/shared-" + std::to_string(getpid())) {
    fs::remove_all(path_);
  }
  ~SharedStoreTest() override { fs::remove_all(path_); }

  std::unique_ptr<SharedStore> Open(const SharedOptions& options = SharedFor()) {
    auto store = SharedStore::Open(
        MakeFaultyFolder(OpenPosixFolder(path_, FolderUse::kShared).value(), faults_), options, clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  // Blocks [first, first + count), of one root.
  static absl::Status Append(SharedStore& store, uint64_t first, uint64_t count, uint64_t root = 0) {
    PageBuffer slot(store.identity().slot_bytes());
    for (uint64_t name = first; name < first + count; ++name) {
      FillBlock(name, slot.bytes().first(static_cast<size_t>(store.identity().block_bytes)));
      if (absl::Status status = store.Append(HashOf(name), RootOf(root), slot); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  static void Publish(SharedStore& store, uint64_t first, uint64_t count) {
    ASSERT_TRUE(Append(store, first, count).ok());
    ASSERT_TRUE(store.Settle().ok());
  }
  // All that can be read of a chain, in as many reads as it takes.
  static int64_t ReadChain(SharedStore& store, uint64_t first, int64_t count) {
    int64_t read = 0;
    while (read < count) {
      const int64_t more = ReadBlocks(store, first + static_cast<uint64_t>(read), count - read);
      if (more == 0) break;
      read += more;
    }
    return read;
  }
  static int64_t FailuresOf(const SharedStore& store, Failure failure) {
    return store.counts().failures[static_cast<size_t>(failure)];
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path_)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
  int64_t Bytes() const {
    int64_t bytes = 0;
    for (const fs::path& file : Files()) {
      std::error_code gone;
      const auto size = fs::file_size(file, gone);
      if (!gone) bytes += static_cast<int64_t>(size);
    }
    return bytes;
  }
  static void Flip(const fs::path& path, int64_t at) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(at);
    file.put(byte);
  }

  const std::string path_;
  Faults faults_;
  FakeClock clock_;
};

TEST_F(SharedStoreTest, WhatOnePublishesTheOtherReads) {
  auto writer = Open(), reader = Open();
  ASSERT_TRUE(Append(*writer, 0, 10).ok());
  // Two runs are full; the third is not there yet for anyone, and nobody needs to write it again.
  EXPECT_EQ(writer->Match(HashesOf(0, 10)), 8);
  EXPECT_TRUE(writer->contains(HashOf(9)));
  EXPECT_EQ(reader->Match(HashesOf(0, 10)), 0) << "it has not looked";
  ASSERT_TRUE(writer->Settle().ok());
  ASSERT_TRUE(reader->Refresh().ok());
  EXPECT_EQ(reader->Match(HashesOf(0, 11)), 10);
  EXPECT_EQ(ReadChain(*reader, 0, 10), 10);
  EXPECT_EQ(ReadChain(*writer, 0, 10), 10);
  EXPECT_EQ(ReadBlocks(*reader, 2, 4), 2) << "what lies side by side";
  EXPECT_EQ(ReadChain(*Open(), 0, 10), 10) << "and who comes later";
  EXPECT_EQ(Files().size(), 3u);
  for (const fs::path& file : Files()) {
    struct stat info {};
    ASSERT_EQ(stat(file.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  reader->CheckTables();
  // Another tenant's hashes are others; a run is one tenant's.
  EXPECT_EQ(reader->Match(HashesOf(500, 3)), 0);
  ASSERT_TRUE(Append(*writer, 20, 1, /*root=*/0).ok());
  ASSERT_TRUE(Append(*writer, 30, 1, /*root=*/1).ok());
  EXPECT_EQ(Files().size(), 4u);
}

TEST_F(SharedStoreTest, WhatBothPublishIsOneFile) {
  auto one = Open(), two = Open();
  Publish(*one, 0, 3);
  Publish(*two, 0, 3);
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(two->counts().written, 0);
  EXPECT_EQ(ReadChain(*two, 0, 3), 3);
  // A longer run takes the place of a shorter one; who knows the shorter one reads on.
  auto three =
      SharedStore::Open(OpenPosixFolder(path_, FolderUse::kShared).value(), SharedFor(), clock_).value();
  fs::rename(Files()[0], path_ + "/aside");
  ASSERT_TRUE(three->Refresh().ok());
  fs::rename(path_ + "/aside", path_ + "/" + Files()[0].filename().string());
  fs::remove(path_ + "/aside");
  Publish(*three, 0, 4);
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(ReadChain(*three, 0, 4), 4);
  EXPECT_EQ(ReadChain(*one, 0, 3), 3);
  // Other blocks behind the same first one: a miss for who knows the old ones, and the file stays.
  fs::remove(Files()[0]);
  ASSERT_TRUE(three->Refresh().ok());
  PageBuffer slot(three->identity().slot_bytes());
  for (const uint64_t name : {0, 77}) {
    FillBlock(name, slot.bytes().first(static_cast<size_t>(three->identity().block_bytes)));
    ASSERT_TRUE(three->Append(HashOf(name), RootOf(0), slot).ok());
  }
  ASSERT_TRUE(three->Settle().ok());
  EXPECT_EQ(ReadChain(*one, 0, 2), 1);
  EXPECT_EQ(FailuresOf(*one, Failure::kCorrupt), 0);
  EXPECT_EQ(Files().size(), 1u);
  ASSERT_TRUE(one->Refresh().ok());
  EXPECT_EQ(ReadChain(*one, 77, 1), 1);
}

TEST_F(SharedStoreTest, DamageIsAMissAndGoes) {
  auto writer = Open();
  Publish(*writer, 0, 4);
  const auto file = Files().at(0);
  const auto reader_of = [&] { return Open(); };
  // In each part of each record, known before the damage.
  std::mt19937 random(5);
  for (int64_t at = kPage; at < FileBytes(4); at += 1 + static_cast<int64_t>(random() % 700)) {
    auto reader = reader_of();
    ASSERT_EQ(reader->Match(HashesOf(0, 4)), 4);
    Flip(file, at);
    const int64_t block = (at - kPage) / IdentityOf().slot_bytes();
    const int64_t within = (at - kPage) % IdentityOf().slot_bytes();
    // Padding holds nothing.
    const bool matters = within < IdentityOf().block_bytes || within >= IdentityOf().slot_bytes() - kPage;
    ASSERT_EQ(ReadChain(*reader, 0, 4), matters ? block : 4) << at;
    ASSERT_EQ(FailuresOf(*reader, Failure::kCorrupt), matters ? 1 : 0) << at;
    reader->CheckTables();
    if (!matters) {
      Flip(file, at);
      continue;
    }
    ASSERT_FALSE(fs::exists(file));
    ASSERT_TRUE(writer->Refresh().ok());
    Publish(*writer, 0, 4);  // anew
  }
  // Truncated, known and unknown.
  auto reader = reader_of();
  fs::resize_file(file, static_cast<uintmax_t>(FileBytes(2)));
  EXPECT_EQ(ReadChain(*Open(), 0, 4), 2) << "each seal tells of those before it";
  fs::resize_file(file, static_cast<uintmax_t>(FileBytes(2) - 100));
  EXPECT_EQ(Open()->Match(HashesOf(0, 4)), 0) << "it ends in no seal";
  EXPECT_LE(ReadChain(*reader, 0, 4), 1);
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(SharedStoreTest, FilesThatVanishOrSwapAreMisses) {
  auto writer = Open(), reader = Open();
  Publish(*writer, 0, 4);
  const auto first = Files().at(0);
  Publish(*writer, 10, 4);
  const auto second = Files().at(0) == first ? Files().at(1) : Files().at(0);
  ASSERT_TRUE(reader->Refresh().ok());
  fs::rename(first, path_ + "/aside");
  fs::rename(second, first);
  fs::rename(path_ + "/aside", second);
  EXPECT_EQ(ReadChain(*reader, 0, 4), 0);
  EXPECT_EQ(ReadChain(*reader, 10, 4), 0);
  EXPECT_EQ(Open()->counts().blocks, 0) << "a file says which one it is";
  fs::remove(first);
  fs::remove(second);
  EXPECT_EQ(ReadChain(*writer, 0, 4), 0);
  EXPECT_EQ(ReadChain(*writer, 10, 4), 0);
  EXPECT_EQ(writer->counts().blocks, 0);
  EXPECT_EQ(FailuresOf(*writer, Failure::kRead) + FailuresOf(*writer, Failure::kCorrupt), 0);
  Publish(*writer, 0, 4);
  EXPECT_EQ(ReadChain(*writer, 0, 4), 4);
}

TEST_F(SharedStoreTest, LinksAndStrangersAreNotFollowed) {
  auto writer = Open();
  Publish(*writer, 0, 4);
  const auto file = Files().at(0);
  fs::rename(file, path_ + "-elsewhere");
  fs::create_symlink(path_ + "-elsewhere", file);
  auto reader = Open();
  EXPECT_EQ(reader->Match(HashesOf(0, 4)), 0);
  EXPECT_EQ(ReadChain(*writer, 0, 4), 0);
  fs::remove(path_ + "-elsewhere");
  std::ofstream(path_ + "/notes.txt") << "not ours";
  ASSERT_TRUE(reader->Refresh().ok());
  EXPECT_TRUE(fs::exists(path_ + "/notes.txt"));
  // The folder itself.
  fs::create_directory_symlink(path_, path_ + "-link");
  EXPECT_FALSE(OpenPosixFolder(path_ + "-link", FolderUse::kShared).ok());
  fs::remove(path_ + "-link");
  fs::permissions(path_, fs::perms::owner_all | fs::perms::group_read);
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenPosixFolder(path_, FolderUse::kShared).status()));
}

TEST_F(SharedStoreTest, OtherModelsAndKeysAreNeverRead) {
  auto writer = Open();
  Publish(*writer, 0, 4);
  auto other = Open(SharedFor(64, /*model=*/2));
  EXPECT_EQ(other->Match(HashesOf(0, 4)), 0);
  EXPECT_EQ(other->counts().bytes, FileBytes(4)) << "they count all the same";
  auto keyed = Open(SharedFor(64, 1, {SharedKeyOf(1)}));
  EXPECT_EQ(keyed->Match(HashesOf(0, 4)), 0);
  Publish(*keyed, 0, 4);
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(ReadChain(*Open(SharedFor(64, 1, {SharedKeyOf(1)})), 0, 4), 4);
  EXPECT_EQ(ReadChain(*Open(SharedFor(64, 1, {SharedKeyOf(2), SharedKeyOf(1)})), 0, 4), 4)
      << "after a rotation";
  EXPECT_EQ(ReadChain(*Open(SharedFor(64, 1, {SharedKeyOf(2)})), 0, 4), 0);
  int in_the_clear = 0;
  for (const fs::path& file : Files()) {
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(stream), {});
    if (bytes.find(HashOf(2).bytes()) != std::string::npos) ++in_the_clear;
  }
  EXPECT_EQ(in_the_clear, 1) << "the one that was written without a key";
  // Damage under a key.
  auto reader = Open(SharedFor(64, 1, {SharedKeyOf(1)}));
  for (const fs::path& file : Files()) Flip(file, kPage + 100);
  EXPECT_EQ(ReadChain(*reader, 0, 4), 0);
  EXPECT_EQ(FailuresOf(*reader, Failure::kCorrupt), 1);
}

TEST_F(SharedStoreTest, WhoDiesWhileWritingLeavesNothingToBeRead) {
  // At every change of two publications; the torn one is torn at several places.
  for (int64_t changes = 0; changes < 8; ++changes) {
    for (const int64_t torn : {int64_t{0}, int64_t{kPage}, FileBytes(2), FileBytes(4) - kPage}) {
      faults_.changes_left = -1;
      faults_.dead = false;
      auto writer = Open();
      faults_.changes_left = changes;
      faults_.torn_bytes = torn;
      (void)Append(*writer, 0, 8);
      const bool died = faults_.dead;
      faults_.changes_left = -1;
      faults_.dead = false;
      auto reader = Open();
      const int64_t found = reader->Match(HashesOf(0, 8));
      EXPECT_EQ(found % kRun, 0);
      EXPECT_EQ(ReadChain(*reader, 0, 8), found);
      EXPECT_EQ(FailuresOf(*reader, Failure::kCorrupt), 0);
      EXPECT_EQ(died, changes < 6) << changes;
      // An unfinished file goes when nobody writes it any more, and not before.
      const int64_t unfinished = std::ssize(Files()) - reader->counts().blocks / kRun;
      EXPECT_LE(unfinished, 1);
      clock_.Advance(absl::Minutes(9));
      ASSERT_TRUE(reader->Refresh().ok());
      EXPECT_EQ(std::ssize(Files()) - reader->counts().blocks / kRun, unfinished);
      clock_.Advance(absl::Minutes(2));
      ASSERT_TRUE(reader->Refresh().ok());
      EXPECT_EQ(std::ssize(Files()), reader->counts().blocks / kRun);
      fs::remove_all(path_);
    }
  }
}

TEST_F(SharedStoreTest, WhatWasUsedLongestAgoGoesFirst) {
  const auto age = [&](uint64_t first, int minutes) {
    // The file of a run, as it is named by its first block.
    for (const fs::path& file : Files()) {
      auto alone = Open(SharedFor(16));
      if (alone->Match(HashesOf(first, 4)) != 4) return;
      fs::rename(file, path_ + "/aside");
      ASSERT_TRUE(alone->Refresh().ok());
      const bool is = alone->Match(HashesOf(first, 4)) == 0;
      fs::rename(path_ + "/aside", file);
      if (is) fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
    }
  };
  {
    auto writer = Open(SharedFor(/*runs=*/16));
    for (uint64_t run = 0; run < 16; ++run) Publish(*writer, 100 * run, 4);
  }
  age(0, 30);
  age(100, 20);
  age(200, 10);
  // A store opened now learns these times; files written in a row may all have the same one.
  auto one = Open(SharedFor(16)), two = Open(SharedFor(16));
  EXPECT_EQ(one->counts().blocks, 64);
  EXPECT_EQ(two->counts().blocks, 64);
  // The other one uses the oldest.
  EXPECT_EQ(ReadChain(*two, 0, 4), 4);
  ASSERT_TRUE(two->Refresh().ok());
  Publish(*one, 5000, 4);
  Publish(*one, 6000, 4);
  EXPECT_EQ(one->Match(HashesOf(0, 4)), 4);
  EXPECT_EQ(one->Match(HashesOf(100, 4)), 0);
  EXPECT_EQ(one->Match(HashesOf(200, 4)), 0);
  EXPECT_LE(Bytes(), 16 * FileBytes(kRun));
  EXPECT_GT(one->counts().evicted, 0);
  EXPECT_EQ(ReadChain(*two, 100, 4), 0);
  // A smaller cap takes the rest.
  auto small =
      SharedStore::Open(OpenPosixFolder(path_, FolderUse::kShared).value(), SharedFor(5), clock_).value();
  EXPECT_LE(Bytes(), 5 * FileBytes(kRun));
}

TEST_F(SharedStoreTest, AFullDiskAndFailuresCostMisses) {
  auto store = Open();
  faults_.full = true;
  EXPECT_TRUE(absl::IsResourceExhausted(Append(*store, 0, 4)));
  EXPECT_FALSE(store->contains(HashOf(0))) << "it may be written again";
  faults_.full = false;
  faults_.bad_writes = 1;
  EXPECT_FALSE(Append(*store, 0, 4).ok());
  EXPECT_EQ(Files().size(), 0u);
  Publish(*store, 0, 4);
  faults_.bad_reads = 2;
  EXPECT_EQ(ReadBlocks(*store, 0, 4), 0);
  EXPECT_EQ(FailuresOf(*store, Failure::kFull), 1);
  EXPECT_EQ(FailuresOf(*store, Failure::kWrite), 1);
  EXPECT_EQ(FailuresOf(*store, Failure::kRead), 1);
  const auto tiny = SharedStore::Open(OpenPosixFolder(path_, FolderUse::kShared).value(),
                                      {.bytes = 3 * FileBytes(1), .identity = IdentityOf()}, clock_);
  EXPECT_TRUE(absl::IsResourceExhausted(tiny.status()));
  EXPECT_THAT(std::string(tiny.status().message()), testing::HasSubstr("--kv-shared-size"));
}

// The server hangs: one call waits for the patience, nothing is found or written until it answers.
TEST_F(SharedStoreTest, AFolderThatHangsIsSilent) {
  absl::Mutex mutex;
  bool hangs = false;
  faults_.on_read = [&] {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(
        +[](bool* hangs) { return !*hangs; }, &hangs));
  };
  auto folder = OpenPatiently(
      [this] { return MakeFaultyFolder(OpenPosixFolder(path_, FolderUse::kShared).value(), faults_); },
      kSanitized ? absl::Seconds(5) : absl::Seconds(1));
  auto store = SharedStore::Open(*std::move(folder), SharedFor(), clock_).value();
  Publish(*store, 0, 4);
  ASSERT_EQ(ReadChain(*store, 0, 4), 4);
  {
    absl::MutexLock lock(&mutex);
    hangs = true;
  }
  EXPECT_EQ(ReadChain(*store, 0, 4), 0);
  EXPECT_EQ(store->Match(HashesOf(0, 4)), 0);
  EXPECT_FALSE(Append(*store, 10, 4).ok());
  EXPECT_FALSE(store->Refresh().ok());
  {
    absl::MutexLock lock(&mutex);
    hangs = false;
  }
  Await([&] { return store->Refresh().ok(); }, "a folder that answers again");
  EXPECT_EQ(ReadChain(*store, 0, 4), 4) << "nothing was lost";
  Publish(*store, 10, 4);
  EXPECT_EQ(ReadChain(*store, 10, 4), 4);
}

// Several workers write, read, refresh and so remove in a folder that is too small for all; one more hand
// removes and damages files. Whatever is read is right (ReadBlocks), and the cap holds but for a run each.
TEST_F(SharedStoreTest, ManyWritersAndEvictorsAtOnce) {
  constexpr int kWorkers = 4;
  constexpr int64_t kRuns = 20;
  const int rounds = kSanitized ? 60 : 400;
  const uint32_t seed = static_cast<uint32_t>(TestSeed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::thread> workers;
  std::atomic<int64_t> read = 0, corrupt = 0;
  (void)Open();  // makes the folder
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    workers.emplace_back([&, worker] {
      std::mt19937 random(seed + worker);
      SharedOptions options = SharedFor(kRuns);
      options.refresh = absl::Milliseconds(1);  // and on a thread of its own
      const MonotonicClock clock;
      auto store =
          SharedStore::Open(OpenPosixFolder(path_, FolderUse::kShared).value(), options, clock).value();
      for (int round = 0; round < rounds; ++round) {
        const uint64_t chain = 1000 * (random() % 40);
        if (random() % 2 == 0) {
          EXPECT_TRUE(Append(*store, chain + random() % 3, 1 + random() % 9).ok());
          if (random() % 2 == 0) {
            EXPECT_TRUE(store->Settle().ok());
          }
        } else {
          read += ReadChain(*store, chain, 1 + static_cast<int64_t>(random() % 9));
        }
        if (random() % 16 == 0) (void)store->Refresh();
        if (random() % 64 == 0) store->CheckTables();
        if (worker == 0 && random() % 16 == 0) {
          std::error_code gone;
          for (auto entry = fs::directory_iterator(path_, gone); !gone && entry != fs::directory_iterator();
               entry.increment(gone)) {
            if (random() % 8 != 0 || entry->path().filename().string()[0] == 'n') continue;
            if (random() % 2 == 0) {
              fs::remove(entry->path(), gone);
            } else {
              Flip(entry->path(), kPage + static_cast<int64_t>(random() % 5000));
            }
          }
        }
        if (round % 32 == 0) {
          EXPECT_LE(Bytes(), (kRuns + 2 * kWorkers) * FileBytes(kRun));
        }
      }
      corrupt += FailuresOf(*store, Failure::kCorrupt);
      EXPECT_TRUE(store->Settle().ok());
      store->CheckTables();
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_GT(read, 0);
  auto last = Open(SharedFor(kRuns));
  EXPECT_LE(Bytes(), kRuns * FileBytes(kRun));
  last->CheckTables();
  RecordProperty("read", static_cast<int>(read));
  RecordProperty("corrupt", static_cast<int>(corrupt));
}

}  // namespace
}  // namespace baton::kv::tier
