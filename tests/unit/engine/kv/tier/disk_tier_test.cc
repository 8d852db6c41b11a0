// The threads around the store: what is accepted is written, what is slow is not waited for.
#include "engine/kv/tier/disk_tier.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "tests/fakes/faulty_folder.h"
#include "tests/unit/engine/kv/tier/tier_blocks.h"

namespace baton::kv::tier {
namespace {

class DiskTierTest : public testing::Test {
 protected:
  std::unique_ptr<DiskTier> Open(
      int64_t slots, std::function<void()> room = [] {}) {
    const Identity identity = IdentityOf();
    auto store = DiskStore::Open(MakeFaultyFolder(disk_.OpenFolder(), faults_),
                                 {.bytes = 100 * identity.slot_bytes(), .identity = identity});
    return std::make_unique<DiskTier>(*std::move(store),
                                      TierOptions{.write_bytes = slots * identity.slot_bytes()}, clock_,
                                      std::move(room));
  }
  // False: it has no slot.
  static bool Write(DiskTier& tier, uint64_t name) {
    auto slot = tier.TakeSlot();
    if (slot == nullptr) return false;
    FillBlock(name, slot->bytes().first(static_cast<size_t>(tier.store().identity().block_bytes)));
    tier.Write(HashOf(name), RootOf(name), std::move(slot));
    return true;
  }

  MemoryDisk disk_;
  Faults faults_;
  FakeClock clock_;
};

TEST_F(DiskTierTest, WhatWasAcceptedIsWritten) {
  {
    const auto tier = Open(64);
    for (uint64_t name = 0; name < 40; ++name) ASSERT_TRUE(Write(*tier, name));
    EXPECT_TRUE(tier->Has(HashOf(39))) << "on its way";
    EXPECT_FALSE(tier->Has(HashOf(40)));
  }
  const auto tier = Open(2);
  EXPECT_EQ(tier->counts().store.blocks, 40);
  EXPECT_EQ(ReadBlocks(tier->store(), 0, 3), 3);
}

TEST_F(DiskTierTest, ADiskThatHangsHoldsUpNobody) {
  absl::Notification go;
  absl::Notification room;
  faults_.on_write = [&] { go.WaitForNotification(); };
  const auto tier = Open(3, [&] {
    if (!room.HasBeenNotified()) room.Notify();
  });
  for (uint64_t name = 0; name < 3; ++name) ASSERT_TRUE(Write(*tier, name));
  EXPECT_FALSE(Write(*tier, 3)) << "all memory for writes is on its way";
  EXPECT_EQ(tier->store().Match(HashesOf(0, 1)), 0) << "not to be found before it is there";
  EXPECT_TRUE(tier->Has(HashOf(0)));
  go.Notify();
  room.WaitForNotification();
  tier->Flush(absl::InfiniteDuration());
  EXPECT_TRUE(Write(*tier, 3));
  tier->Flush(absl::InfiniteDuration());
  EXPECT_EQ(ReadBlocks(tier->store(), 0, 4), 4);
  EXPECT_EQ(tier->counts().waiting, 0);
}

TEST_F(DiskTierTest, AfterAFailureItPauses) {
  const auto tier = Open(8);
  faults_.full = true;
  ASSERT_TRUE(Write(*tier, 0));
  tier->Flush(absl::InfiniteDuration());
  faults_.full = false;
  ASSERT_TRUE(Write(*tier, 1));
  tier->Flush(absl::InfiniteDuration());
  EXPECT_EQ(tier->counts().dropped_failing, 1);
  EXPECT_FALSE(tier->Has(HashOf(0)) || tier->Has(HashOf(1)));
  clock_.Advance(absl::Seconds(11));
  ASSERT_TRUE(Write(*tier, 1));
  tier->Flush(absl::InfiniteDuration());
  EXPECT_TRUE(tier->Has(HashOf(1)));
}

TEST_F(DiskTierTest, TheWritingThreadFillsInWhatIsOnItsWay) {
  const auto tier = Open(4);
  auto slot = tier->TakeSlot();
  tier->Write(HashOf(5), RootOf(5), std::move(slot), [](std::span<std::byte> block) { FillBlock(5, block); });
  tier->Flush(absl::InfiniteDuration());
  EXPECT_EQ(ReadBlocks(tier->store(), 5, 1), 1);
}

TEST_F(DiskTierTest, ReadsPassWrites) {
  absl::Notification go;
  const auto tier = Open(4);
  ASSERT_TRUE(Write(*tier, 1));
  tier->Flush(absl::InfiniteDuration());
  faults_.on_write = [&] { go.WaitForNotification(); };
  ASSERT_TRUE(Write(*tier, 2));
  absl::Notification read;
  int64_t blocks = 0;
  tier->PostRead([&] {
    blocks = ReadBlocks(tier->store(), 1, 2);
    read.Notify();
  });
  read.WaitForNotification();
  EXPECT_EQ(blocks, 1);
  go.Notify();
}

}  // namespace
}  // namespace baton::kv::tier
