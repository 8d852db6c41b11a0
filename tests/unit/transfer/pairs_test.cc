// The life of communicators, against a NCCL with scripted failures and a clock moved by hand.
#include "transfer/nccl/pairs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

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

  static Peer To(uint64_t incarnation) { return {Incarnation(incarnation), false, ""}; }
  static Peer From(uint64_t incarnation) { return {Incarnation(incarnation), true, "sender"}; }

  // The meeting with a peer.
  absl::StatusOr<Meeting> Open(uint64_t receiver) {
    return sender_.Open(
        To(receiver), [this] { return fmt::format("meeting {:8}", ++meetings_); }, now_);
  }
  // Makes all calls that are due, as the link's threads would.
  void Work() {
    while (sender_.has_work() || receivers_.has_work()) {
      Do(receivers_);
      Do(sender_);
    }
  }
  void Do(Pairs& pairs) {
    const Pairs::Work work = pairs.TakeWork();
    for (const auto& ask : work.asks) {
      const absl::Status comes = sender_.Attend(ask.meeting, now_);
      if (comes.ok()) {
        asked_.emplace(ask.meeting, ask.peer);
      } else {
        pairs.OnId(ask.peer, ask.meeting, comes, now_);
      }
    }
    for (const auto& make : work.makes) {
      NcclId id = {};
      EXPECT_EQ(api_.make_id(id), NcclState::kOk);
      if (!pairs.OnId(make.peer, make.meeting, id, now_)) continue;
      receivers_.OnId(asked_.at(make.meeting), make.meeting, id, now_);
    }
    for (const auto& join : work.joins) {
      Communicator made = nullptr;
      absl::StatusOr<Communicator> communicator = absl::UnavailableError("NCCL can't join");
      if (api_.join(join.id, join.rank, made) != NcclState::kFailed) communicator = made;
      pairs.OnJoined(join.peer, join.meeting, communicator, now_);
    }
    std::vector<Communicator> ends;
    for (const auto& end : work.ends) ends.push_back(end.communicator);
    api_.abort(ends);
    for (const auto& end : work.ends) pairs.OnEnded(end.meeting);
  }
  static std::vector<Peer> Peers(const std::vector<Pairs::Ended>& ended) {
    std::vector<Peer> peers;
    for (const auto& one : ended) peers.push_back(one.peer);
    return peers;
  }
  std::vector<Peer> Poll(Pairs& pairs) { return Peers(pairs.Poll(now_)); }

  // Both ends of a pair, up to Ready: the sender is worker 1, the receiver `receiver`.
  Meeting Connect(uint64_t receiver) {
    const auto meeting = Open(receiver);
    EXPECT_TRUE(meeting.ok()) << meeting.status();
    EXPECT_TRUE(receivers_.Join(From(receiver), *meeting, now_).ok());
    Work();
    EXPECT_THAT(Poll(receivers_), IsEmpty());
    (void)sender_.Poll(now_);
    EXPECT_EQ(sender_.state(To(receiver)), State::kReady);
    return *meeting;
  }
  // A group of one transfer of one byte.
  std::span<const TransferMemory> One(std::byte& byte) {
    one_ = {&byte, 1};
    return {&one_, 1};
  }
  // One transfer from end to end.
  bool Moves(uint64_t receiver) {
    std::byte from{7}, to{0};
    const int64_t before = sender_.Done(To(receiver), now_).value_or(-1);
    return sender_.Send(To(receiver), One(from), now_) == NcclState::kOk &&
           receivers_.Receive(From(receiver), One(to), now_) == NcclState::kOk &&
           sender_.Done(To(receiver), now_) == before + 1 &&
           receivers_.Done(From(receiver), now_) == before + 1 && to == from;
  }

  TransferMemory one_ = {};
  FakeNccl nccl_;
  const NcclApi api_ = nccl_.Api();
  const PairOptions options_ = {.max_open = kMost};
  absl::Time now_ = absl::UnixEpoch();
  int meetings_ = 0;
  std::map<Meeting, Peer> asked_;
  Pairs sender_{api_, options_};
  Pairs receivers_{api_, options_};  // all receivers in one: their pairs are apart
};

TEST_F(PairsTest, AreMadeWhenFirstUsedAndThenStay) {
  EXPECT_EQ(nccl_.open(), 0);
  const Meeting meeting = Connect(2);
  EXPECT_TRUE(Moves(2));
  EXPECT_EQ(*Open(2), meeting);
  EXPECT_EQ(nccl_.ids(), 1);
  EXPECT_EQ(nccl_.open(), 2);
  EXPECT_EQ(sender_.joined_total(), 1);
  EXPECT_EQ(sender_.ids_total(), 1);
  EXPECT_EQ(sender_.ids_met_total(), 1);
}

TEST_F(PairsTest, NothingIsSentBeforeBothHaveJoined) {
  nccl_.HoldJoins(true);
  const auto meeting = Open(2);
  ASSERT_TRUE(meeting.ok());
  std::byte byte{1};
  EXPECT_EQ(sender_.Send(To(2), One(byte), now_), NcclState::kBusy);
  ASSERT_TRUE(receivers_.Join(From(2), *meeting, now_).ok());
  EXPECT_EQ(sender_.state(To(2)), State::kMeeting);
  Work();
  sender_.Poll(now_);
  EXPECT_EQ(sender_.state(To(2)), State::kJoining);
  EXPECT_EQ(sender_.Send(To(2), One(byte), now_), NcclState::kBusy);
  nccl_.HoldJoins(false);
  sender_.Poll(now_);
  receivers_.Poll(now_);
  EXPECT_TRUE(Moves(2));
}

// An id costs a thread and a socket until both ends have joined.
TEST_F(PairsTest, AnIdIsMadeWhenThePeerComesAndNotBefore) {
  const auto meeting = Open(2);
  Work();
  EXPECT_EQ(nccl_.ids(), 0);
  EXPECT_TRUE(sender_.Attend(*meeting, now_).ok());
  const Pairs::Work work = sender_.TakeWork();
  ASSERT_EQ(work.makes.size(), 1u);
  EXPECT_EQ(work.makes[0].meeting, *meeting);
  EXPECT_TRUE(absl::IsNotFound(sender_.Attend("another one", now_)));
}

// A receiver asks once. If it asks again it has given its end up.
TEST_F(PairsTest, APeerThatAsksAgainHasForgottenThePair) {
  const Meeting meeting = Connect(2);
  receivers_.Forget(From(2));
  EXPECT_TRUE(receivers_.Join(From(2), meeting, now_).ok());
  Work();
  EXPECT_EQ(sender_.state(To(2)), std::nullopt);
  EXPECT_EQ(receivers_.state(From(2)), std::nullopt) << "no rest: nothing has failed";
  EXPECT_EQ(nccl_.open(), 0);
  EXPECT_THAT(Poll(receivers_), ElementsAre(From(2), From(2)));
  EXPECT_NE(Connect(2), meeting);
  EXPECT_TRUE(Moves(2));
}

TEST_F(PairsTest, IdsThatNobodyCameToAreCountedAndBounded) {
  const PairOptions options = {
      .meet_timeout = absl::Seconds(1), .join_timeout = absl::Seconds(1), .max_lost_ids = 2};
  Pairs sender(api_, options);
  for (uint64_t peer = 2; peer < 6; ++peer) {
    const auto meeting = sender.Open(
        To(peer), [&] { return fmt::format("to {}", peer); }, now_);
    const absl::Status attends = sender.Attend(*meeting, now_);
    for (const auto& make : sender.TakeWork().makes) sender.OnId(make.peer, make.meeting, NcclId{}, now_);
    EXPECT_EQ(attends.ok(), peer < 4) << attends;
    EXPECT_EQ(absl::IsResourceExhausted(attends), peer >= 4);
    now_ += absl::Seconds(2);
    EXPECT_THAT(Poll(sender), ElementsAre(To(peer)));
  }
  EXPECT_EQ(sender.ids_total() - sender.ids_met_total(), 2);
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
  // The dropped peer is met again at a new meeting; its other end gives the old one up.
  Connect(3);
  EXPECT_TRUE(Moves(3));
}

TEST_F(PairsTest, ReceivingPairsHaveABoundOfTheirOwn) {
  const PairOptions options = {.max_open = 1, .max_receiving = 2};
  Pairs receiver(api_, options);
  const auto meet = [&](uint64_t peer) {
    ASSERT_TRUE(receiver.Join(From(peer), fmt::format("of {}", peer), now_).ok());
    NcclId id = {};
    std::memcpy(id.data(), &peer, sizeof peer);
    ASSERT_TRUE(receiver.OnId(From(peer), fmt::format("of {}", peer), id, now_));
    Communicator other = nullptr, own = nullptr;
    (void)api_.join(id, 0, other);
    (void)api_.join(id, 1, own);
    receiver.OnJoined(From(peer), fmt::format("of {}", peer), own, now_);
    (void)receiver.Poll(now_);
    ASSERT_EQ(receiver.state(From(peer)), State::kReady);
    now_ += absl::Seconds(1);
  };
  for (uint64_t peer : {2, 3, 4}) meet(peer);
  EXPECT_EQ(receiver.open(), 2u);
  EXPECT_EQ(receiver.state(From(2)), std::nullopt);
  EXPECT_EQ(receiver.ending(), 1u);
}

TEST_F(PairsTest, WhatIsAtWorkIsNeverDropped) {
  nccl_.HoldTransfers(true);
  std::byte byte{1};
  for (uint64_t peer : {2, 3, 4}) {
    Connect(peer);
    ASSERT_EQ(sender_.Send(To(peer), One(byte), now_), NcclState::kOk);
  }
  Connect(5);
  for (uint64_t peer : {2, 3, 4, 5}) EXPECT_EQ(sender_.state(To(peer)), State::kReady);
}

TEST_F(PairsTest, AnErrorEndsItsOwnPairOnly) {
  Connect(2);
  Connect(3);
  nccl_.LosePeers();
  EXPECT_THAT(Poll(sender_), ElementsAre(To(2), To(3)));
  EXPECT_THAT(Poll(receivers_), ElementsAre(From(2), From(3)));
  Connect(4);
  EXPECT_THAT(Poll(sender_), IsEmpty()) << "each failure is told once";
  EXPECT_EQ(sender_.state(To(2)), State::kQuarantined);
  EXPECT_THAT(std::string(Open(2).status().message()), HasSubstr("scripted"));
  EXPECT_TRUE(Moves(4));
  std::byte byte{1};
  EXPECT_EQ(sender_.Send(To(2), One(byte), now_), NcclState::kFailed);
  EXPECT_EQ(sender_.failed_total(), 2);
}

// NCCL may touch the memory of a put until the communicator's abort has returned: others wait for that.
TEST_F(PairsTest, ACommunicatorHoldsItsMemoryUntilItsAbortIsOver) {
  const Meeting meeting = Connect(2);
  EXPECT_TRUE(sender_.holds(meeting));
  sender_.Fail(To(2), "a test", now_);
  EXPECT_EQ(sender_.open(), 0u);
  EXPECT_EQ(sender_.ending(), 1u);
  EXPECT_TRUE(sender_.holds(meeting));
  Work();
  EXPECT_FALSE(sender_.holds(meeting));
  EXPECT_EQ(sender_.ending(), 0u);
}

// Its pair was given up while NCCL still joined.
TEST_F(PairsTest, ACommunicatorThatComesTooLateIsAborted) {
  const auto meeting = Open(2);
  ASSERT_TRUE(sender_.Attend(*meeting, now_).ok());
  (void)sender_.TakeWork();
  ASSERT_TRUE(sender_.OnId(To(2), *meeting, NcclId{}, now_));
  ASSERT_EQ(sender_.TakeWork().joins.size(), 1u);
  sender_.Forget(To(2));
  Communicator made = nullptr;
  (void)api_.join(NcclId{}, 0, made);
  sender_.OnJoined(To(2), *meeting, made, now_);
  EXPECT_EQ(sender_.ending(), 1u);
  Work();
  EXPECT_EQ(nccl_.open(), 0);
}

TEST_F(PairsTest, APeerThatNeverAsksIsGivenUpAndCostsNoId) {
  ASSERT_TRUE(Open(2).ok());
  now_ += options_.meet_timeout;
  EXPECT_THAT(Poll(sender_), IsEmpty());
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Poll(sender_), ElementsAre(To(2)));
  EXPECT_EQ(sender_.ids_total(), 0);
}

TEST_F(PairsTest, APeerThatNeverJoinsIsGivenUp) {
  const auto meeting = Open(2);
  ASSERT_TRUE(sender_.Attend(*meeting, now_).ok());
  asked_.emplace(*meeting, From(2));
  Work();
  EXPECT_EQ(sender_.state(To(2)), State::kJoining);
  now_ += options_.join_timeout;
  EXPECT_THAT(Poll(sender_), IsEmpty());
  now_ += absl::Milliseconds(1);
  const auto ended = sender_.Poll(now_);
  EXPECT_THAT(Peers(ended), ElementsAre(To(2)));
  EXPECT_THAT(ended[0].why, HasSubstr("has not joined"));
  Work();
  EXPECT_EQ(nccl_.open(), 0);
  EXPECT_EQ(nccl_.ids_listening(), 1);
}

TEST_F(PairsTest, ATransferThatHangsIsGivenUp) {
  Connect(2);
  nccl_.HoldTransfers(true);
  std::byte byte{1};
  ASSERT_EQ(sender_.Send(To(2), One(byte), now_), NcclState::kOk);
  now_ += options_.transfer_timeout;
  EXPECT_THAT(Poll(sender_), IsEmpty());
  EXPECT_EQ(sender_.Done(To(2), now_), 0);
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Poll(sender_), ElementsAre(To(2)));
  EXPECT_EQ(sender_.Done(To(2), now_), std::nullopt);
}

TEST_F(PairsTest, AnIdlePairIsNoFailureAndGoesAtTheSendingEndFirst) {
  Connect(2);
  EXPECT_TRUE(Moves(2));
  now_ += options_.idle;
  EXPECT_THAT(Poll(sender_), IsEmpty());
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Poll(sender_), ElementsAre(To(2)));
  EXPECT_THAT(Poll(receivers_), IsEmpty());
  EXPECT_EQ(sender_.state(To(2)), std::nullopt);
  EXPECT_EQ(sender_.failed_total(), 0);
  now_ += options_.idle;
  EXPECT_THAT(Poll(receivers_), ElementsAre(From(2)));
}

TEST_F(PairsTest, ASuspectGoesSoonUnlessItIsUsed) {
  Connect(2);
  Connect(3);
  receivers_.Suspect("sender");
  receivers_.Suspect("somebody else");
  now_ += options_.suspect_idle;
  EXPECT_TRUE(receivers_.Join(From(3), *Open(3), now_).ok());  // a message of its own
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Poll(receivers_), ElementsAre(From(2)));
}

TEST_F(PairsTest, QuarantineDoublesUpToItsLimitAndEndsWithSuccess) {
  absl::Duration expected = options_.first_quarantine;
  for (int failure = 0; failure < 9; ++failure) {
    ASSERT_TRUE(Open(2).ok());
    sender_.Fail(To(2), "a test", now_);
    EXPECT_THAT(Poll(sender_), ElementsAre(To(2)));
    now_ += expected - absl::Milliseconds(1);
    const auto refused = Open(2);
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
  Connect(2);  // the count has started over
  EXPECT_TRUE(Moves(2));
}

TEST_F(PairsTest, TheMeetingThatFailedIsNotGoneToAgain) {
  const Meeting meeting = Connect(2);
  nccl_.LosePeers();
  receivers_.Poll(now_);
  now_ += absl::Minutes(1);
  EXPECT_EQ(receivers_.Join(From(2), meeting, now_).code(), absl::StatusCode::kUnavailable);
  sender_.Poll(now_);
  now_ += absl::Minutes(1);
  Connect(2);
}

TEST_F(PairsTest, FailuresOfTheCallersAndOfTransfersEndThePair) {
  Connect(2);
  sender_.Fail(To(2), "never announced", now_);
  sender_.Fail(To(2), "again", now_);
  const auto ended = sender_.Poll(now_);
  ASSERT_THAT(Peers(ended), ElementsAre(To(2)));
  EXPECT_EQ(ended[0].why, "never announced");
  Connect(3);
  nccl_.FailTransfers(1);
  std::byte byte{1};
  EXPECT_EQ(sender_.Send(To(3), One(byte), now_), NcclState::kFailed);
  EXPECT_THAT(Poll(sender_), ElementsAre(To(3)));
}

TEST_F(PairsTest, EverythingIsGivenBackAtTheEnd) {
  Connect(2);
  Connect(3);
  sender_.Forget(To(3));
  sender_.Forget(To(3));
  sender_.ForgetAll();
  receivers_.ForgetAll();
  Work();
  EXPECT_EQ(nccl_.open(), 0);
  EXPECT_EQ(nccl_.aborts(), 4);
}

}  // namespace
}  // namespace baton::transfer
