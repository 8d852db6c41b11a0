// The life of communicators, against a NCCL with scripted failures and a clock moved by hand.
#include "common/transfer/nccl/pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_nccl.h"

namespace baton::transfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using State = Pairs::State;
using Peer = Pairs::Peer;

class PairsTest : public testing::Test {
 protected:
  static constexpr size_t kMost = 3;

  Peer To(uint64_t incarnation) const { return {Incarnation(incarnation), false}; }
  Peer From(uint64_t incarnation) const { return {Incarnation(incarnation), true}; }

  // Both ends of a pair, up to Ready: the sender is worker 1, the receiver `receiver`.
  NcclId Connect(uint64_t receiver) {
    const auto id = sender_.Open(To(receiver), now_);
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(receivers_.Join(From(receiver), *id, now_).ok());
    EXPECT_THAT(sender_.Poll(now_), IsEmpty());
    EXPECT_THAT(receivers_.Poll(now_), IsEmpty());
    EXPECT_EQ(sender_.state(To(receiver)), State::kReady);
    return *id;
  }
  // One transfer from end to end.
  bool Moves(uint64_t receiver) {
    const std::byte from{7};
    std::byte to{0};
    const int64_t before = sender_.Done(To(receiver), now_).value_or(-1);
    return sender_.Send(To(receiver), &from, 1, now_) == NcclState::kOk &&
           receivers_.Receive(From(receiver), &to, 1, now_) == NcclState::kOk &&
           sender_.Done(To(receiver), now_) == before + 1 &&
           receivers_.Done(From(receiver), now_) == before + 1 && to == from;
  }

  FakeNccl nccl_;
  const NcclApi api_ = nccl_.Api();
  const PairOptions options_ = {.max_open = kMost};
  absl::Time now_ = absl::UnixEpoch();
  Pairs sender_{api_, options_};
  Pairs receivers_{api_, options_};  // all receivers in one: their pairs are apart
};

TEST_F(PairsTest, AreMadeWhenFirstUsedAndThenStay) {
  EXPECT_EQ(nccl_.open(), 0);
  const NcclId id = Connect(2);
  EXPECT_TRUE(Moves(2));
  EXPECT_EQ(*sender_.Open(To(2), now_), id);
  EXPECT_EQ(nccl_.ids(), 1);
  EXPECT_EQ(nccl_.open(), 2);
  EXPECT_EQ(sender_.joined_total(), 1);
}

TEST_F(PairsTest, NothingIsSentBeforeBothHaveJoined) {
  nccl_.HoldJoins(true);
  const auto id = sender_.Open(To(2), now_);
  ASSERT_TRUE(id.ok());
  const std::byte byte{1};
  EXPECT_EQ(sender_.Send(To(2), &byte, 1, now_), NcclState::kBusy);
  ASSERT_TRUE(receivers_.Join(From(2), *id, now_).ok());
  sender_.Poll(now_);
  EXPECT_EQ(sender_.state(To(2)), State::kJoining);
  nccl_.HoldJoins(false);
  sender_.Poll(now_);
  receivers_.Poll(now_);
  EXPECT_TRUE(Moves(2));
}

TEST_F(PairsTest, TheLeastRecentlyUsedIdleOneMakesRoom) {
  for (uint64_t peer : {2, 3, 4}) {
    Connect(peer);
    now_ += absl::Seconds(1);
  }
  EXPECT_TRUE(Moves(2));  // so 3 is the oldest
  now_ += absl::Seconds(1);
  Connect(5);
  EXPECT_EQ(sender_.open(), kMost);
  EXPECT_EQ(sender_.state(To(3)), std::nullopt);
  EXPECT_TRUE(Moves(2) && Moves(4) && Moves(5));
  // The dropped peer is met again under a new id; its other end gives the old one up.
  const auto again = sender_.Open(To(3), now_);
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(receivers_.Join(From(3), *again, now_).ok());
  sender_.Poll(now_);
  receivers_.Poll(now_);
  EXPECT_TRUE(Moves(3));
}

TEST_F(PairsTest, WhatIsAtWorkIsNeverDropped) {
  nccl_.HoldTransfers(true);
  const std::byte byte{1};
  for (uint64_t peer : {2, 3, 4}) {
    Connect(peer);
    ASSERT_EQ(sender_.Send(To(peer), &byte, 1, now_), NcclState::kOk);
  }
  Connect(5);
  for (uint64_t peer : {2, 3, 4, 5}) EXPECT_EQ(sender_.state(To(peer)), State::kReady);
}

TEST_F(PairsTest, ADeadPeerEndsItsOwnPairOnly) {
  Connect(2);
  Connect(3);
  nccl_.LosePeers();
  EXPECT_THAT(sender_.Poll(now_), ElementsAre(To(2), To(3)));
  EXPECT_THAT(receivers_.Poll(now_), ElementsAre(From(2), From(3)));
  Connect(4);
  EXPECT_THAT(sender_.Poll(now_), IsEmpty()) << "each failure is told once";
  EXPECT_EQ(sender_.state(To(2)), State::kQuarantined);
  EXPECT_THAT(sender_.reason(To(2)), HasSubstr("scripted"));
  EXPECT_TRUE(Moves(4));
  const std::byte byte{1};
  EXPECT_EQ(sender_.Send(To(2), &byte, 1, now_), NcclState::kFailed);
  EXPECT_EQ(sender_.failed_total(), 2);
}

TEST_F(PairsTest, APeerThatNeverJoinsIsGivenUp) {
  ASSERT_TRUE(sender_.Open(To(2), now_).ok());
  now_ += options_.join_timeout;
  EXPECT_THAT(sender_.Poll(now_), IsEmpty());
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(sender_.Poll(now_), ElementsAre(To(2)));
  EXPECT_THAT(sender_.reason(To(2)), HasSubstr("has not joined"));
  EXPECT_EQ(nccl_.open(), 0);
}

TEST_F(PairsTest, ATransferThatHangsIsGivenUp) {
  Connect(2);
  nccl_.HoldTransfers(true);
  const std::byte byte{1};
  ASSERT_EQ(sender_.Send(To(2), &byte, 1, now_), NcclState::kOk);
  now_ += options_.transfer_timeout;
  EXPECT_THAT(sender_.Poll(now_), IsEmpty());
  EXPECT_EQ(sender_.Done(To(2), now_), 0);
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(sender_.Poll(now_), ElementsAre(To(2)));
  EXPECT_EQ(sender_.Done(To(2), now_), std::nullopt);
}

TEST_F(PairsTest, AnIdlePairIsNoHang) {
  Connect(2);
  EXPECT_TRUE(Moves(2));
  now_ += absl::Hours(10);
  EXPECT_THAT(sender_.Poll(now_), IsEmpty());
  EXPECT_TRUE(Moves(2));
}

TEST_F(PairsTest, QuarantineDoublesUpToItsLimitAndEndsWithSuccess) {
  absl::Duration expected = options_.first_quarantine;
  for (int failure = 0; failure < 9; ++failure) {
    nccl_.FailJoins(1);
    EXPECT_EQ(sender_.Open(To(2), now_).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(sender_.Poll(now_), ElementsAre(To(2)));
    now_ += expected - absl::Milliseconds(1);
    const auto refused = sender_.Open(To(2), now_);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << "failure " << failure;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("rests for another 1 ms"));
    now_ += absl::Milliseconds(1);
    expected = std::min(2 * expected, options_.longest_quarantine);
  }
  Connect(2);
  EXPECT_TRUE(Moves(2));
  nccl_.LosePeers();
  sender_.Poll(now_);
  receivers_.Poll(now_);
  now_ += options_.first_quarantine;
  Connect(2);  // the count began anew
  EXPECT_TRUE(Moves(2));
}

TEST_F(PairsTest, TheIdThatFailedIsNotJoinedAgain) {
  const NcclId id = Connect(2);
  nccl_.LosePeers();
  receivers_.Poll(now_);
  now_ += absl::Hours(1);
  EXPECT_EQ(receivers_.Join(From(2), id, now_).code(), absl::StatusCode::kUnavailable);
  sender_.Poll(now_);
  const auto fresh = sender_.Open(To(2), now_ + absl::Hours(1));
  ASSERT_TRUE(fresh.ok());
  EXPECT_TRUE(receivers_.Join(From(2), *fresh, now_).ok());
}

TEST_F(PairsTest, FailuresOfTheCallersAndOfTransfersEndThePair) {
  Connect(2);
  sender_.Fail(To(2), "a wrong checksum", now_);
  sender_.Fail(To(2), "again", now_);
  EXPECT_THAT(sender_.Poll(now_), ElementsAre(To(2)));
  EXPECT_EQ(sender_.reason(To(2)), "a wrong checksum");
  Connect(3);
  nccl_.FailTransfers(1);
  const std::byte byte{1};
  EXPECT_EQ(sender_.Send(To(3), &byte, 1, now_), NcclState::kFailed);
  EXPECT_THAT(sender_.Poll(now_), ElementsAre(To(3)));
}

TEST_F(PairsTest, EverythingIsGivenBackAtTheEnd) {
  {
    Pairs pairs(api_, options_);
    ASSERT_TRUE(pairs.Open(To(2), now_).ok());
    ASSERT_TRUE(pairs.Open(To(3), now_).ok());
    pairs.Forget(To(3));
    pairs.Forget(To(3));
    EXPECT_EQ(nccl_.open(), 1);
  }
  EXPECT_EQ(nccl_.open(), 0);
  EXPECT_EQ(nccl_.aborts(), 2);
}

}  // namespace
}  // namespace baton::transfer
