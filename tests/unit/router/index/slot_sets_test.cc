#include "router/index/slot_sets.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>
#include <vector>

namespace baton::router::index {
namespace {

std::set<uint32_t> Members(const SlotSets& sets, SlotSets::Name name) {
  SlotSets::View view;
  sets.Read(name, &view);
  std::set<uint32_t> members(view.members.begin(), view.members.end());
  if (view.words == nullptr) return members;
  for (uint32_t slot = 0; slot < SlotSets::kMaxSlots; ++slot) {
    if ((view.words[slot / 64] >> (slot % 64)) & 1) members.insert(slot);
  }
  return members;
}

TEST(SlotSetsTest, GrowsFromTheNameToABitsetAndBack) {
  SlotSets sets;
  SlotSets::Name name = SlotSets::kOwnersBit;
  for (uint32_t slot = 0; slot < 5000; ++slot) {
    ASSERT_EQ(sets.Add(&name, slot * 6, INT64_MAX), SlotSets::Added::kNew);
    ASSERT_EQ(sets.Add(&name, slot * 6, INT64_MAX), SlotSets::Added::kAlready);
    ASSERT_EQ(sets.Size(name), slot + 1);
    ASSERT_TRUE(sets.Contains(name, slot * 6));
    ASSERT_FALSE(sets.Contains(name, slot * 6 + 1));
    ASSERT_TRUE(name & SlotSets::kOwnersBit);
    ASSERT_EQ(sets.bytes() > 1 << 15, slot >= 2) << "two members need no storage";
  }
  for (uint32_t slot = 0; slot < 5000; ++slot) {
    ASSERT_TRUE(sets.Remove(&name, slot * 6));
    ASSERT_FALSE(sets.Remove(&name, slot * 6));
    ASSERT_EQ(sets.Size(name), 5000 - slot - 1);
    ASSERT_TRUE(name & SlotSets::kOwnersBit);
  }
  EXPECT_EQ(name, SlotSets::kOwnersBit);
  EXPECT_LT(sets.bytes(), 1 << 15) << "the chunks went back";
}

TEST(SlotSetsTest, KnowsTheLargestSlot) {
  SlotSets sets;
  SlotSets::Name name = SlotSets::kEmpty;
  const uint32_t largest = SlotSets::kMaxSlots - 1;
  ASSERT_EQ(sets.Add(&name, largest, INT64_MAX), SlotSets::Added::kNew);
  EXPECT_EQ(Members(sets, name), std::set<uint32_t>{largest});
  for (uint32_t slot = 0; slot < 3000; ++slot) sets.Add(&name, slot, INT64_MAX);
  EXPECT_TRUE(sets.Contains(name, largest));
  EXPECT_EQ(sets.Size(name), 3001u);
}

TEST(SlotSetsTest, ManySetsAgreeWithStdSet) {
  SlotSets sets;
  std::vector<SlotSets::Name> names(50, SlotSets::kEmpty);
  std::vector<std::set<uint32_t>> model(names.size());
  std::mt19937 random(7);
  for (int step = 0; step < 200'000; ++step) {
    const size_t at = random() % names.size();
    // Small sets and large ones; phases of growth and of decay.
    const uint32_t slot = random() % (at % 5 == 0 ? 4000 : 12);
    if (random() % 8 < (step / 40'000 % 2 == 0 ? 6u : 2u)) {
      const bool fresh = model[at].insert(slot).second;
      ASSERT_EQ(sets.Add(&names[at], slot, INT64_MAX),
                fresh ? SlotSets::Added::kNew : SlotSets::Added::kAlready);
    } else if (random() % 500 == 0) {
      std::vector<uint64_t> gone(40);
      for (uint64_t& word : gone) word = random();
      sets.RemoveAll(&names[at], gone);
      std::erase_if(model[at], [&](uint32_t one) {
        return one / 64 < gone.size() && ((gone[one / 64] >> (one % 64)) & 1);
      });
    } else {
      ASSERT_EQ(sets.Remove(&names[at], slot), model[at].erase(slot) > 0);
    }
    ASSERT_EQ(sets.Size(names[at]), model[at].size()) << "step " << step;
    if (step % 100 != 0) continue;
    ASSERT_EQ(Members(sets, names[at]), model[at]) << "step " << step;
  }
  for (SlotSets::Name& name : names) sets.Free(&name);
  EXPECT_LT(sets.bytes(), 1 << 15);
}

TEST(SlotSetsTest, RefusesToGrowBeyondTheLimit) {
  SlotSets sets;
  SlotSets::Name name = SlotSets::kEmpty;
  ASSERT_EQ(sets.Add(&name, 1, 1000), SlotSets::Added::kNew);
  ASSERT_EQ(sets.Add(&name, 2, 1000), SlotSets::Added::kNew);
  EXPECT_EQ(sets.Add(&name, 3, 1000), SlotSets::Added::kNoMemory);
  EXPECT_EQ(Members(sets, name), (std::set<uint32_t>{1, 2}));
}

}  // namespace
}  // namespace baton::router::index
