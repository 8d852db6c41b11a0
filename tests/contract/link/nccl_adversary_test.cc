// The nccl link over a NCCL that does what the real one is known to do wrong: calls that block, frees that
// wait for every kernel of the device, ids that are never given back, calls in progress after they have
// returned, and idle peers whose death nobody notices. Nothing here sleeps: a call blocks until the test lets
// it go, and a link that waited for it would never get to that line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/digest.h"
#include "tests/contract/link/nccl_rig.h"
#include "tests/patience.h"

namespace baton::transfer {
namespace {

using testing::HasSubstr;

class NcclAdversaryTest : public NcclRig {
 protected:
  // A payload for `to` whose message is lost, on a pair that is ready: the send never ends.
  void Hang(uint64_t to) {
    const int64_t before = sender_->counts().staging_in_use;
    Ship(*sender_, RandomBytes(100), to);
    EXPECT_GT(sender_->counts().staging_in_use, before);
  }
};

// Receivers 2 and 3; the transfer to 2 hangs and is aborted, and the abort does not come back.
TEST_F(NcclAdversaryTest, AnAbortThatBlocksHoldsUpNobody) {
  auto other = Make(3);
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2) && Moves(*sender_, *other, 3));
  nccl_.BlockAborts(true);
  Hang(2);
  LongUntil([&] { return nccl_.blocked() == 1; });
  EXPECT_EQ(sender_->counts().ending, 1u);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Moves(*sender_, *other, 3));
  nccl_.BlockAborts(false);
  Until([&] { return sender_->counts().ending == 0; });
}

TEST_F(NcclAdversaryTest, JoinsAndIdsThatBlockHoldUpNobody) {
  auto other = Make(3), third = Make(4);
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));
  nccl_.BlockIds(true);
  Arrival late, later;
  const auto bytes = RandomBytes(500);
  Receive(*other, Ship(*sender_, bytes, 3), late);
  Until([&] { return nccl_.blocked() == 1; });
  EXPECT_TRUE(Moves(*sender_, *receiver_, 2));
  nccl_.BlockJoins(true);
  nccl_.BlockIds(false);
  Until([&] { return nccl_.blocked() == 2; });  // both ends of the pair with 3
  Receive(*third, Ship(*sender_, bytes, 4), later);
  Until([&] { return nccl_.blocked() == 4; });
  EXPECT_TRUE(Moves(*sender_, *receiver_, 2));
  EXPECT_FALSE(late.status.has_value() || later.status.has_value());
  nccl_.BlockJoins(false);
  EXPECT_TRUE(Wait(late).ok() && Wait(later).ok());
  EXPECT_EQ(late.bytes, bytes);
}

// The frees of the first abort wait for the second one's kernel.
TEST_F(NcclAdversaryTest, PairsThatHangOneAfterTheOtherAreAllAborted) {
  auto other = Make(3), third = Make(4);
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2) && Moves(*sender_, *other, 3) && Moves(*sender_, *third, 4));
  nccl_.AbortsWaitForKernels(true);
  Hang(2);
  Hang(3);
  Until([&] { return nccl_.in_progress() == 2; });
  clock_.Advance(absl::Seconds(3));
  Hang(4);
  Until([&] { return nccl_.in_progress() == 3; });
  clock_.Advance(absl::Seconds(3));
  Until([&] { return sender_->counts().ending == 2 && nccl_.blocked() > 0; });
  clock_.Advance(absl::Seconds(3));
  Until([&] { return sender_->counts().aborted == 3 && sender_->counts().ending == 0; });
  EXPECT_EQ(sender_->counts().staging_in_use, 0);
}

TEST_F(NcclAdversaryTest, DeviceMemoryIsNeitherTakenNorFreedAfterTheStart) {
  auto other = Make(3);
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2) && Moves(*sender_, *other, 3));
  Hang(2);
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(Moves(*sender_, *other, 3, 1 + random_() % (4 << 20)));
  }
  for (uint64_t worker : {1, 2, 3}) EXPECT_EQ(payloads_[worker]->allocations(), 1);
  other.reset();
  EXPECT_EQ(payloads_[3]->allocations(), 2) << "given back at the end";
}

// The receiver's buffers of an aborted communicator are written until its abort has come back.
TEST_F(NcclAdversaryTest, MemoryOfAnAbortedPairIsNotUsedBeforeItsAbortIsOver) {
  options_.staging_bytes = int64_t{1} << 20;
  auto small = Make(5), other = Make(6);
  ASSERT_TRUE(Moves(*sender_, *small, 5) && Moves(*other, *small, 5));
  nccl_.HoldTransfers(true);
  Arrival lost;
  Receive(*small, Ship(*sender_, RandomBytes(200 << 10), 5), lost);
  Until([&] { return small->counts().staging_in_use > 0; });
  nccl_.BlockAborts(true);
  EXPECT_EQ(WaitLong(lost).code(), absl::StatusCode::kUnavailable);
  const int64_t held = small->counts().staging_in_use;
  EXPECT_GE(held, 200 << 10);
  nccl_.HoldTransfers(false);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Moves(*other, *small, 5, 200 << 10));
  EXPECT_EQ(small->counts().staging_in_use, held);
  // As many as there is room for, some of which are on their way when the memory returns.
  std::vector<Arrival> arrivals(3);
  std::vector<fleet::v1::KvChunk> chunks;
  std::vector<std::vector<std::byte>> sent;
  for (size_t i = 0; i < arrivals.size(); ++i) sent.push_back(RandomBytes(200 << 10));
  nccl_.HoldTransfers(true);
  for (size_t i = 0; i < arrivals.size(); ++i) Receive(*small, Ship(*other, sent[i], 5), arrivals[i]);
  Until([&] { return small->counts().staging_in_use > held; });
  nccl_.BlockAborts(false);
  Until([&] { return small->counts().ending == 0; });
  nccl_.HoldTransfers(false);
  for (size_t i = 0; i < arrivals.size(); ++i) {
    EXPECT_TRUE(Wait(arrivals[i]).ok());
    EXPECT_EQ(arrivals[i].bytes, sent[i]);
  }
}

TEST_F(NcclAdversaryTest, ACallThatDoesNotComeBackIsAFaultAndNewTransfersAreRefused) {
  auto other = Make(3);
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2) && Moves(*sender_, *other, 3));
  nccl_.BlockAborts(true);
  Hang(2);
  LongUntil([&] { return nccl_.blocked() == 1; });
  EXPECT_EQ(sender_->fault(), "");
  clock_.Advance(options_.call_deadline - absl::Seconds(10));
  EXPECT_TRUE(Moves(*sender_, *other, 3)) << "the call may still come back";
  LongUntil([&] { return !sender_->fault().empty(); });
  EXPECT_THAT(sender_->fault(), HasSubstr("should be restarted"));
  EXPECT_TRUE(sender_->counts().fault);
  fleet::v1::KvChunk chunk;
  const absl::Status refused = TryShip(*sender_, RandomBytes(100), 3, chunk);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("should be restarted"));
  EXPECT_EQ(other->fault(), "") << "the peer's NCCL is sound";
  nccl_.BlockAborts(false);
  LongUntil([&] { return sender_->fault().empty(); });
  LongUntil([&] { return static_cast<bool>(Moves(*sender_, *other, 3)); });
}

// Sends leave when their payload is there, whatever is packed after it.
TEST_F(NcclAdversaryTest, APayloadLeavesWhenItIsPackedAndNotWhenTheStepEnds) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));  // pack 1
  payloads_[1]->HoldPacksAfter(2);
  const auto first = RandomBytes(1000), second = RandomBytes(1000);
  Arrival one, two;
  Receive(*receiver_, Ship(*sender_, first), one);
  const fleet::v1::KvChunk next = Ship(*sender_, second);
  EXPECT_TRUE(Wait(one).ok());
  EXPECT_EQ(one.bytes, first);
  payloads_[1]->HoldPacksAfter(3);
  Receive(*receiver_, next, two);
  EXPECT_TRUE(Wait(two).ok());
  EXPECT_EQ(two.bytes, second);
}

// A receiver that heard of a payload before its pack has ended would wait for it on its GPU.
TEST_F(NcclAdversaryTest, AMessageIsReleasedWhenItsPayloadIsPackedAndInOrder) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));  // pack 1
  payloads_[1]->HoldPacksAfter(1);
  absl::Mutex mutex;
  std::vector<int> released;
  const auto release = [&](int number) {
    sender_->WhenReady([&, number] {
      absl::MutexLock lock(&mutex);
      released.push_back(number);
    });
  };
  const auto so_far = [&] {
    absl::MutexLock lock(&mutex);
    return released;
  };
  const auto asked_again = [&] {
    const int64_t before = payloads_[1]->asked();
    Until([&] { return payloads_[1]->asked() > before + 4; });
  };
  Ship(*sender_, RandomBytes(100));
  release(1);
  Ship(*sender_, RandomBytes(100));
  release(2);
  release(3);  // what follows on the stream
  asked_again();
  EXPECT_THAT(so_far(), testing::IsEmpty());
  payloads_[1]->HoldPacksAfter(2);
  Until([&] { return !so_far().empty(); });
  asked_again();
  EXPECT_THAT(so_far(), testing::ElementsAre(1));
  payloads_[1]->HoldPacksAfter(3);
  Until([&] { return so_far().size() == 3; });
  EXPECT_THAT(so_far(), testing::ElementsAre(1, 2, 3));
  // Whoever waits for a pack that does not end is released when the link closes.
  payloads_[1]->HoldPacksAfter(3);
  Ship(*sender_, RandomBytes(100));
  release(4);
  sender_->Close();
  EXPECT_THAT(so_far(), testing::ElementsAre(1, 2, 3, 4));
}

// Receives spin on the GPU until their senders come.
TEST_F(NcclAdversaryTest, SoManyPairsReceiveAtOnceAndTheOthersTakeTurns) {
  options_.most_receiving = 2;
  auto few = Make(50);
  std::vector<std::shared_ptr<NcclLink>> senders;
  for (uint64_t i = 0; i < 6; ++i) {
    senders.push_back(Make(60 + i));
    ASSERT_TRUE(Moves(*senders.back(), *few, 50));
  }
  nccl_.HoldTransfers(true);
  std::vector<Arrival> arrivals(18);
  const auto bytes = RandomBytes(1000);
  for (size_t i = 0; i < 12; ++i) Receive(*few, Ship(*senders[i % 6], bytes, 50), arrivals[i]);
  Until([&] { return nccl_.most_receiving(50) == 2; });
  // Pairs whose turn it is take no more while others wait.
  for (size_t i = 12; i < 18; ++i) Receive(*few, Ship(*senders[i % 6], bytes, 50), arrivals[i]);
  nccl_.HoldTransfers(false);
  for (Arrival& arrival : arrivals) EXPECT_TRUE(Wait(arrival).ok());
  EXPECT_EQ(nccl_.most_receiving(50), 2u);
}

// One sender never stops; another one's turn comes all the same.
TEST_F(NcclAdversaryTest, ABusySenderDoesNotKeepItsTurnForEver) {
  options_.most_receiving = 1;
  auto few = Make(50), busy = Make(60), other = Make(61);
  ASSERT_TRUE(Moves(*busy, *few, 50) && Moves(*other, *few, 50));
  nccl_.HoldTransfers(true);
  const auto bytes = RandomBytes(100);
  std::vector<Arrival> arrivals(101);
  Arrival late;
  for (size_t i = 0; i < 2; ++i) Receive(*few, Ship(*busy, bytes, 50), arrivals[i]);
  Until([&] { return nccl_.most_receiving(50) == 1; });
  Receive(*few, Ship(*other, bytes, 50), late);
  Until([&] { return few->counts().staging_in_use == 3 * Staging::Size(100); });  // it has asked
  for (size_t i = 2; i < arrivals.size(); ++i) Receive(*few, Ship(*busy, bytes, 50), arrivals[i]);
  nccl_.HoldTransfers(false);
  EXPECT_TRUE(Wait(late).ok() && Wait(arrivals.back()).ok());
  EXPECT_LT(late.place, arrivals.back().place);
}

// A launch per transfer limits a pair; what is ready goes out at once, and the ends may differ about it.
TEST_F(NcclAdversaryTest, WhatIsReadyGoesOutInOneGroup) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));
  payloads_[1]->HoldPacksAfter(1);
  std::vector<Arrival> arrivals(10);
  std::vector<std::vector<std::byte>> sent;
  for (Arrival& arrival : arrivals) {
    sent.push_back(RandomBytes(1 + random_() % 3000));
    Receive(*receiver_, Ship(*sender_, sent.back()), arrival);
  }
  payloads_[1]->HoldPacksAfter(UINT64_MAX);
  for (size_t i = 0; i < arrivals.size(); ++i) {
    EXPECT_TRUE(Wait(arrivals[i]).ok());
    EXPECT_EQ(arrivals[i].bytes, sent[i]);
  }
  EXPECT_EQ(nccl_.largest_group(), 10u);
}

TEST_F(NcclAdversaryTest, TheLinksThreadSleepsNoLongerThanItAsksFor) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));
  EXPECT_EQ(payloads_[1]->timer_slack(), 1);
}

// A pair that waits for staging memory that comes back, and is in use again at once, is not at fault.
TEST_F(NcclAdversaryTest, APairThatWaitsForMemoryIsNotBlamedWhileSomeComesBack) {
  options_.staging_bytes = int64_t{1} << 20;
  auto other = Make(6);
  options_.pairs.transfer_timeout = absl::Seconds(2);  // the senders have 5 s
  auto small = Make(5);
  ASSERT_TRUE(Moves(*sender_, *small, 5) && Moves(*other, *small, 5));
  payloads_[5]->HoldUnpacksAfter(2);
  std::vector<Arrival> first(3);
  const auto bytes = RandomBytes(250 << 10), large = RandomBytes(700 << 10);
  for (Arrival& arrival : first) Receive(*small, Ship(*other, bytes, 5), arrival);
  const auto all = 300 + static_cast<int64_t>(first.size() * bytes.size());
  Until([&] { return other->counts().sent_bytes == all; });  // they have landed, whatever the clock says
  Arrival second;
  Receive(*small, Ship(*sender_, large, 5), second);
  for (uint64_t ended = 3; ended < 5; ++ended) {
    clock_.Advance(absl::Seconds(1.5));
    const int64_t before = small->counts().staging_in_use;
    payloads_[5]->HoldUnpacksAfter(ended);
    Until([&] { return small->counts().staging_in_use != before; });
  }
  payloads_[5]->HoldUnpacksAfter(UINT64_MAX);
  EXPECT_TRUE(Wait(second).ok());
  EXPECT_EQ(small->counts().failed, 0);
  for (Arrival& arrival : first) EXPECT_TRUE(Wait(arrival).ok());
}

// Checking and scattering go on after the engine thread has begun them, and it does other things meanwhile.
TEST_F(NcclAdversaryTest, TheEngineThreadDoesNotWaitForWhatItUnpacks) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));
  payloads_[2]->HoldUnpacksAfter(1);
  std::vector<Arrival> arrivals(5);
  std::vector<std::vector<std::byte>> sent;
  for (Arrival& arrival : arrivals) {
    sent.push_back(RandomBytes(1000));
    Receive(*receiver_, Ship(*sender_, sent.back()), arrival);
  }
  Until([&] { return sender_->counts().sent_bytes == 300 + 5 * 1000; });
  for (int i = 0; i < 20; ++i) RunEngine(absl::Milliseconds(1));
  for (const Arrival& arrival : arrivals) EXPECT_FALSE(arrival.status.has_value());
  EXPECT_EQ(receiver_->counts().staging_in_use, 5 * Staging::Size(1000)) << "still read";
  payloads_[2]->HoldUnpacksAfter(UINT64_MAX);
  for (size_t i = 0; i < arrivals.size(); ++i) {
    EXPECT_TRUE(Wait(arrivals[i]).ok());
    EXPECT_EQ(arrivals[i].bytes, sent[i]);
  }
  EXPECT_EQ(receiver_->counts().staging_in_use, 0);
  // A caller that still waits for an unpack when the link closes is told.
  payloads_[2]->HoldUnpacksAfter(1);
  Arrival last;
  Receive(*receiver_, Ship(*sender_, sent[0]), last);
  Until([&] { return sender_->counts().sent_bytes == 300 + 6 * 1000; });
  for (int i = 0; i < 20; ++i) RunEngine(absl::Milliseconds(1));
  receiver_->Close();
  EXPECT_EQ(Wait(last).code(), absl::StatusCode::kCancelled);
}

TEST_F(NcclAdversaryTest, CallsThatAreInProgressAfterTheyReturnedLoseNothing) {
  nccl_.StayInProgress(true);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(Moves(*sender_, *receiver_, 2, 1 + random_() % 9000)) << i;
  EXPECT_EQ(sender_->counts().failed + receiver_->counts().failed, 0);
}

// Nothing tells the receiver that an idle sender has died, and its next life is another peer.
TEST_F(NcclAdversaryTest, DeadPeersThatWereIdleAreForgotten) {
  for (uint64_t life = 10; life < 15; ++life) {
    auto dead = Make(life);
    ASSERT_TRUE(Moves(*dead, *receiver_, 2));
  }
  EXPECT_EQ(receiver_->counts().open_pairs, 5u);
  Pass(2 * options_.pairs.idle + absl::Seconds(1));
  LongUntil([&] { return receiver_->counts().open_pairs == 0; });
  Until([&] { return nccl_.open() == 0; });
  EXPECT_EQ(receiver_->counts().failed, 0) << "nobody is blamed";
  EXPECT_TRUE(Moves(*sender_, *receiver_, 2));
}

TEST_F(NcclAdversaryTest, APeerWhoseStreamBrokeIsForgottenSoon) {
  auto dead = Make(10);
  ASSERT_TRUE(Moves(*dead, *receiver_, 2) && Moves(*sender_, *receiver_, 2));
  dead.reset();
  receiver_->Suspect(Address(10));
  Pass(options_.pairs.suspect_idle + absl::Seconds(1));
  Until([&] { return receiver_->counts().open_pairs == 1; });
  EXPECT_TRUE(Moves(*sender_, *receiver_, 2));
}

TEST_F(NcclAdversaryTest, AnotherIncarnationAtTheSameAddressMeansThatTheFirstIsDead) {
  auto dead = Make(10);
  Arrival before, after;
  Receive(*receiver_, Ship(*dead, RandomBytes(10)), before, "10.0.0.1:8470");
  // Asked at its address; the rig knows it there.
  workers_["10.0.0.1:8470"] = dead;
  ASSERT_TRUE(Wait(before).ok());
  dead.reset();
  auto reborn = Make(11);
  workers_["10.0.0.1:8470"] = reborn;
  Receive(*receiver_, Ship(*reborn, RandomBytes(10)), after, "10.0.0.1:8470");
  ASSERT_TRUE(Wait(after).ok());
  EXPECT_EQ(receiver_->counts().open_pairs, 2u);
  Pass(options_.pairs.suspect_idle - absl::Seconds(1));
  Arrival again;
  Receive(*receiver_, Ship(*reborn, RandomBytes(10)), again, "10.0.0.1:8470");
  ASSERT_TRUE(Wait(again).ok());
  clock_.Advance(absl::Seconds(2));
  Until([&] { return receiver_->counts().open_pairs == 1; });
}

// The sending end gives an idle pair up first, so that the next transfer does not find a receiver without it.
TEST_F(NcclAdversaryTest, APairThatWasIdleIsMadeAgainWithoutAFailure) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));
  Pass(options_.pairs.idle + absl::Seconds(1));
  LongUntil([&] { return sender_->counts().open_pairs == 0; });
  EXPECT_TRUE(Moves(*sender_, *receiver_, 2));
  EXPECT_EQ(nccl_.ids(), 2);
  Until([&] { return nccl_.open() == 2; });
}

// With too many senders the least used pair goes, and its sender hears of it when it comes back.
TEST_F(NcclAdversaryTest, TooManySendersTakeTurnsWithoutAQuarantine) {
  options_.pairs.max_receiving = 2;
  auto few = Make(5), other = Make(6), third = Make(7);
  for (const auto& link : {sender_, other, third}) {
    ASSERT_TRUE(Moves(*link, *few, 5));
    clock_.Advance(absl::Seconds(1));
  }
  Until([&] { return few->counts().open_pairs == 2; });
  const auto bytes = RandomBytes(100);
  Arrival lost;
  Receive(*few, Ship(*sender_, bytes, 5), lost);
  EXPECT_EQ(Wait(lost).code(), absl::StatusCode::kUnavailable);
  Until([&] { return static_cast<bool>(Moves(*sender_, *few, 5)); });
  EXPECT_EQ(sender_->counts().failed + few->counts().failed, 0);
}

// An id costs a thread and a socket until both ends have come. Messages that nobody reads make none.
TEST_F(NcclAdversaryTest, NoIdIsMadeForAPeerThatDoesNotCome) {
  for (uint64_t peer = 100; peer < 120; ++peer) Ship(*sender_, RandomBytes(10), peer);
  LongUntil([&] { return sender_->counts().failed == 20; });
  EXPECT_EQ(nccl_.ids(), 0);
  EXPECT_EQ(sender_->counts().staging_in_use, 0);
}

// A network policy between the two: they agree on meetings, and NCCL reaches nobody.
TEST_F(NcclAdversaryTest, IdsThatAreLostAllTheSameAreBounded) {
  options_.pairs.max_lost_ids = 3;
  auto link = Make(5);
  nccl_.FailJoins(1000);
  std::string why;
  for (int i = 0; i < 10; ++i) {
    Arrival arrival;
    fleet::v1::KvChunk chunk;
    Pass(2 * options_.pairs.longest_quarantine);
    ASSERT_TRUE(TryShip(*link, RandomBytes(10), 2, chunk).ok());
    Receive(*receiver_, chunk, arrival);
    EXPECT_EQ(WaitLong(arrival).code(), absl::StatusCode::kUnavailable);
    why = std::string(arrival.status->message());
    Until([&] { return link->counts().staging_in_use == 0; });
  }
  EXPECT_EQ(nccl_.ids(), 3);
  EXPECT_EQ(nccl_.ids_listening(), 3);
  EXPECT_EQ(link->counts().ids - link->counts().ids_met, 3);
  EXPECT_THAT(why, HasSubstr("keeps a thread and a port"));
}

// A worker that says it is another one reaches its own pair alone.
TEST_F(NcclAdversaryTest, AWorkerThatPosesAsAnotherOneEndsNobodysPair) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));
  auto evil = Make(66);
  fleet::v1::KvChunk forged = Ship(*evil, RandomBytes(50));
  forged.mutable_apart()->set_sender(1);
  forged.mutable_apart()->set_epoch(1000);
  forged.set_crc32c(Crc32c(fmt::format("{} {} {} {} {} {} ", forged.incarnation(), forged.ticket_id(), 1,
                                       1000, forged.apart().sequence(), forged.apart().bytes()) +
                           forged.apart().meeting()));
  Arrival arrival;
  Receive(*receiver_, forged, arrival, Address(66));
  EXPECT_TRUE(Wait(arrival).ok()) << "believed, at a pair of its own: the ticket decides what it may write";
  EXPECT_TRUE(Moves(*sender_, *receiver_, 2));
  EXPECT_EQ(receiver_->counts().failed, 0);
  EXPECT_EQ(sender_->counts().failed, 0);
  EXPECT_EQ(receiver_->counts().aborted, 0);
}

// One worker, named by two routers in two ways.
TEST_F(NcclAdversaryTest, AWorkerUnderTwoAddressesHasOnePair) {
  ASSERT_TRUE(Moves(*sender_, *receiver_, 2));
  const auto bytes = RandomBytes(50);
  Arrival arrival;
  Receive(*receiver_, Ship(*sender_, bytes), arrival, "prefill-0.prefill:8470");
  EXPECT_TRUE(Wait(arrival).ok());
  EXPECT_EQ(arrival.bytes, bytes);
  EXPECT_EQ(nccl_.ids(), 1);
}

// One peer announces much and sends late; another one's transfers find room.
TEST_F(NcclAdversaryTest, APeerThatAnnouncesMuchLeavesRoomForOthers) {
  options_.staging_bytes = int64_t{4} << 20;
  auto small = Make(5), other = Make(6);
  ASSERT_TRUE(Moves(*sender_, *small, 5) && Moves(*other, *small, 5));
  payloads_[1]->HoldPacksAfter(1);
  std::vector<Arrival> late(8);
  const auto bytes = RandomBytes(1 << 20);
  for (Arrival& arrival : late) Receive(*small, Ship(*sender_, bytes, 5), arrival);
  Until([&] { return small->counts().staging_in_use > 0; });
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Moves(*other, *small, 5, 1 << 20));
  payloads_[1]->HoldPacksAfter(UINT64_MAX);
  for (Arrival& arrival : late) EXPECT_TRUE(Wait(arrival).ok());
}

TEST_F(NcclAdversaryTest, ClosingDoesNotWaitForEverForNccl) {
  std::vector<std::string> gave_up;
  options_.give_up = [&](const std::string& why) {
    gave_up.push_back(why);
    nccl_.BlockAborts(false);  // the process would have ended here
  };
  auto link = Make(5);
  ASSERT_TRUE(Moves(*link, *receiver_, 2));
  nccl_.BlockAborts(true);
  std::thread time([&] {
    Await([this] { return nccl_.blocked() > 0; }, "an abort that does not come back");
    clock_.Advance(options_.call_deadline + absl::Seconds(1));
  });
  link->Close();
  time.join();
  ASSERT_EQ(gave_up.size(), 1u);
  EXPECT_THAT(gave_up[0], HasSubstr("does not come back"));
}

}  // namespace
}  // namespace baton::transfer
