// A folder that hangs holds its callers up once, for the patience, and nobody afterwards.
#include "engine/kv/tier/patient_folder.h"

#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "engine/kv/tier/record.h"
#include "tests/fakes/faulty_folder.h"
#include "tests/patience.h"

namespace baton::kv::tier {
namespace {

TEST(PatientFolderTest, PassesOnWhatTheFolderDoes) {
  MemoryDisk disk;
  auto folder = OpenPatiently([&] { return disk.OpenFolder(); }, Scaled(absl::Seconds(60))).value();
  PageBuffer page(kPage), back(kPage);
  page.bytes()[7] = std::byte{9};
  {
    const auto file = folder->Create("one", kPage).value();
    EXPECT_TRUE(file->WriteAt(0, page.bytes()).ok());
    EXPECT_TRUE(file->Sync().ok());
  }
  EXPECT_TRUE(folder->Rename("one", "two").ok());
  EXPECT_TRUE(absl::IsNotFound(folder->Open("one").status()));
  EXPECT_EQ(folder->List().value(), std::vector<std::string>{"two"});
  EXPECT_EQ(folder->Look("two")->bytes, kPage);
  EXPECT_TRUE(folder->Open("two").value()->ReadAt(0, back.bytes()).ok());
  EXPECT_EQ(back.bytes()[7], std::byte{9});
  EXPECT_TRUE(absl::IsDataLoss(folder->Open("two").value()->ReadAt(kPage, back.bytes())));
  EXPECT_TRUE(folder->Remove("two").ok());
  const auto failed =
      OpenPatiently([] { return absl::StatusOr<std::unique_ptr<Folder>>(absl::DataLossError("")); },
                    Scaled(absl::Seconds(60)));
  EXPECT_TRUE(absl::IsDataLoss(failed.status()));
}

TEST(PatientFolderTest, AHangIsWaitedForOnce) {
  MemoryDisk disk;
  Faults faults;
  absl::Mutex mutex;
  bool hangs = true;
  int reads = 0;
  faults.on_read = [&] {
    absl::MutexLock lock(&mutex);
    ++reads;
    mutex.Await(absl::Condition(
        +[](bool* hangs) { return !*hangs; }, &hangs));
  };
  auto folder =
      OpenPatiently([&] { return MakeFaultyFolder(disk.OpenFolder(), faults); }, absl::Milliseconds(50))
          .value();
  const auto file = folder->Create("one", kPage).value();
  PageBuffer page(kPage);
  EXPECT_TRUE(absl::IsDeadlineExceeded(file->ReadAt(0, page.bytes())));
  // As long as it hangs nothing else is begun.
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(file->ReadAt(0, page.bytes())));
    EXPECT_TRUE(absl::IsDeadlineExceeded(folder->Look("one").status()));
  }
  {
    absl::MutexLock lock(&mutex);
    EXPECT_EQ(reads, 1);
    hangs = false;
  }
  Await([&] { return folder->Look("one").ok(); }, "a folder that answers again");
  Await([&] { return file->ReadAt(0, page.bytes()).ok(); }, "a file that answers again");
}

}  // namespace
}  // namespace baton::kv::tier
