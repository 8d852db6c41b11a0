// Names, slots and who gives payloads up.
#include "transfer/ucx/held_payloads.h"

#include <gtest/gtest.h>

#include <array>

namespace baton::transfer {
namespace {

class HeldPayloadsTest : public testing::Test {
 protected:
  static HeldPayloads::Payload For(uint64_t receiver, uint64_t ticket, absl::Time since = absl::UnixEpoch(),
                                   uint64_t pack = 1) {
    return {.run = {},
            .bytes = 1,
            .pack = pack,
            .receiver = Incarnation(receiver),
            .ticket = TicketId(ticket),
            .since = since};
  }

  std::array<HeldPayloads::Slot, 3> slots_ = {};
  HeldPayloads held_{slots_};
  const absl::Time start_ = absl::UnixEpoch();
};

TEST_F(HeldPayloadsTest, ASlotShowsTheNameAsLongAsThePayloadIsHeld) {
  const auto place = held_.Hold(For(1, 1), true);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->name % 2, 1u);
  EXPECT_EQ(place->slot->load(), place->name);
  EXPECT_TRUE(held_.Read(place->name, start_).has_value());
  EXPECT_NE(place->slot->load(), place->name);
  EXPECT_FALSE(held_.Read(place->name, start_).has_value()) << "only once";
  EXPECT_EQ(held_.size(), 0u);
}

TEST_F(HeldPayloadsTest, AnIncompletePayloadShowsAnotherNumberUntilItsPackHasEnded) {
  const auto first = held_.Hold(For(1, 1, start_, 4), false),
             second = held_.Hold(For(1, 1, start_, 5), false);
  EXPECT_EQ(first->slot->load(), first->name - 1);
  EXPECT_EQ(held_.incomplete(), 4u);
  held_.Completed(4);
  EXPECT_EQ(first->slot->load(), first->name);
  EXPECT_EQ(second->slot->load(), second->name - 1);
  EXPECT_EQ(held_.incomplete(), 5u);
  EXPECT_EQ(held_.TakeOf(Incarnation(1), TicketId(1)).size(), 2u);
  EXPECT_FALSE(held_.incomplete().has_value())
      << "its slot is another payload's by the time that the pack ends";
}

TEST_F(HeldPayloadsTest, WithoutASlotNothingIsHeld) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(held_.Hold(For(1, 1), true).has_value());
  EXPECT_FALSE(held_.Hold(For(1, 1), true).has_value());
  EXPECT_EQ(held_.TakeOf(Incarnation(1), TicketId(1)).size(), 3u);
  EXPECT_TRUE(held_.Hold(For(1, 1), true).has_value());
}

TEST_F(HeldPayloadsTest, StaleIsWhatAReceiverLeavesThatReadsNothing) {
  const auto read = held_.Hold(For(1, 1, start_), true);
  ASSERT_TRUE(held_.Hold(For(1, 2, start_), true).has_value());
  ASSERT_TRUE(held_.Hold(For(2, 3, start_), true).has_value());
  (void)held_.Read(read->name, start_ + absl::Seconds(5));
  EXPECT_EQ(held_.TakeStale(start_ + absl::Seconds(10), absl::Seconds(10)).size(), 0u);
  const auto stale = held_.TakeStale(start_ + absl::Seconds(11), absl::Seconds(10));
  ASSERT_EQ(stale.size(), 1u);
  EXPECT_EQ(stale[0].ticket, TicketId(3)) << "the first receiver has read something since";
  EXPECT_EQ(held_.TakeStale(start_ + absl::Seconds(16), absl::Seconds(10)).size(), 1u);
}

}  // namespace
}  // namespace baton::transfer
