// Promises of the nccl link beyond the contract of links: numbers that come in any order, payloads that are
// hurt on the way, and peers that vanish, over a NCCL with scripted failures.
#include "transfer/nccl/nccl_link.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/digest.h"
#include "tests/contract/link/nccl_rig.h"

namespace baton::transfer {
namespace {

using testing::HasSubstr;

using NcclLinkTest = NcclRig;

TEST_F(NcclLinkTest, MessagesMayComeInAnyOrder) {
  std::vector<std::vector<std::byte>> sent;
  std::vector<fleet::v1::KvChunk> chunks;
  for (int i = 0; i < 20; ++i) {
    sent.push_back(RandomBytes(100 + random_() % 5000));
    chunks.push_back(Ship(*sender_, sent.back()));
  }
  std::vector<size_t> order(sent.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random_);
  std::vector<Arrival> arrivals(sent.size());
  for (size_t i : order) Receive(*receiver_, chunks[i], arrivals[i]);
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_TRUE(Wait(arrivals[i]).ok()) << "seed " << kSeed;
    EXPECT_EQ(arrivals[i].bytes, sent[i]);
  }
  EXPECT_EQ(nccl_.ids(), 1);
  EXPECT_EQ(receiver_->counts().joined, 1);
}

TEST_F(NcclLinkTest, APayloadHurtOnTheWayIsDataLossAndNothingIsWritten) {
  const auto bytes = RandomBytes(1000);
  nccl_.CorruptNext(700);
  Arrival arrival;
  Receive(*receiver_, Ship(*sender_, bytes), arrival);
  EXPECT_EQ(Wait(arrival).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(arrival.bytes, std::vector<std::byte>(1000));
  Arrival next;
  Receive(*receiver_, Ship(*sender_, bytes), next);
  EXPECT_TRUE(Wait(next).ok()) << "the pair is sound";
  EXPECT_EQ(next.bytes, bytes);
}

// A hand-off that is cancelled takes the messages with it that its stream had not delivered.
TEST_F(NcclLinkTest, AMessageThatNeverComesHurtsNobody) {
  std::vector<std::vector<std::byte>> sent;
  std::vector<Arrival> arrivals(30);
  for (Arrival& arrival : arrivals) {
    sent.push_back(RandomBytes(100 + random_() % 5000));
    const fleet::v1::KvChunk chunk = Ship(*sender_, sent.back());
    if (sent.size() % 3 != 0) continue;
    Receive(*receiver_, chunk, arrival);
    EXPECT_TRUE(Wait(arrival).ok()) << "seed " << kSeed;
    EXPECT_EQ(arrival.bytes, sent.back());
  }
  EXPECT_EQ(receiver_->counts().failed, 0);
  EXPECT_EQ(nccl_.ids(), 1);
  // A payload that nobody asks for does not stay.
  clock_.Advance(options_.pairs.transfer_timeout + absl::Seconds(1));
  Until([&] { return receiver_->counts().dropped_bytes > 0; });
}

TEST_F(NcclLinkTest, AMessageMayComeAfterItsPayload) {
  const auto first = RandomBytes(3000), second = RandomBytes(200);
  const fleet::v1::KvChunk late = Ship(*sender_, first);
  Arrival later, arrival;
  Receive(*receiver_, Ship(*sender_, second), arrival);
  EXPECT_TRUE(Wait(arrival).ok());  // so the first one's payload is here, and waits
  Receive(*receiver_, late, later);
  EXPECT_TRUE(Wait(later).ok());
  EXPECT_EQ(later.bytes, first);
  Arrival twice;
  Receive(*receiver_, late, twice);
  EXPECT_EQ(Wait(twice).code(), absl::StatusCode::kDataLoss);
}

// More messages in a row were lost than a message tells of.
TEST_F(NcclLinkTest, ANumberThatIsNeverToldOfEndsThePairAndTheNextMeetingWorks) {
  const auto bytes = RandomBytes(300);
  Ship(*sender_, bytes);
  fleet::v1::KvChunk chunk = Ship(*sender_, bytes);
  chunk.mutable_apart()->clear_before();
  chunk.set_crc32c(
      Crc32c(fmt::format("{} {} {} {} {} {} ", chunk.incarnation(), chunk.ticket_id(), chunk.apart().sender(),
                         chunk.apart().epoch(), chunk.apart().sequence(), chunk.apart().bytes()) +
             chunk.apart().meeting()));
  Arrival stranded;
  Receive(*receiver_, chunk, stranded);
  Until([&] { return receiver_->counts().joined > 0; });
  EXPECT_EQ(WaitLong(stranded).code(), absl::StatusCode::kUnavailable);
  // The sender notices by itself that nothing gets on, and rests.
  LongUntil([&] { return sender_->counts().failed > 0; });
  Pass(absl::Minutes(2));
  Arrival again;
  Receive(*receiver_, Ship(*sender_, bytes), again);
  EXPECT_TRUE(Wait(again).ok());
  EXPECT_EQ(again.bytes, bytes);
  EXPECT_EQ(nccl_.ids(), 2);
}

// Chunks that fit in what was set aside are shipped, however much else is on its way; the rest comes back.
TEST_F(NcclLinkTest, WhatWasReservedIsThereWhenItIsShipped) {
  options_.staging_bytes = int64_t{1} << 20;
  auto small = Make(5);
  nccl_.HoldTransfers(true);
  const auto bytes = RandomBytes(100 << 10);
  const int64_t each = small->Footprint(static_cast<int64_t>(bytes.size()));
  const protocol::Ticket planned = TicketOf(2, 7);
  EXPECT_EQ(small->Reserve(planned, each, 3 * each), 3 * each);
  int others = 0;
  fleet::v1::KvChunk refused;
  while (TryShip(*small, bytes, 3, refused).ok()) ++others;
  EXPECT_EQ(others, 6) << "of 104 KiB, beside three that are reserved";
  std::vector<fleet::v1::KvChunk> chunks;
  for (int i = 0; i < 2; ++i) chunks.push_back(Ship(*small, bytes, 2, planned.id.value()));
  const int64_t before = small->counts().staging_in_use;
  small->Unreserve(planned);
  EXPECT_EQ(small->counts().staging_in_use, before - each);
  std::vector<Arrival> arrivals(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) Receive(*receiver_, chunks[i], arrivals[i]);
  nccl_.HoldTransfers(false);
  for (Arrival& arrival : arrivals) {
    EXPECT_TRUE(Wait(arrival).ok());
    EXPECT_EQ(arrival.bytes, bytes);
  }
}

// A receiver that takes nothing can't keep others waiting, and whoever waits is woken.
TEST_F(NcclLinkTest, AReceiverGetsItsShareOfTheSendersMemoryAndTheLoopIsWokenForMore) {
  options_.staging_bytes = int64_t{1} << 20;
  auto small = Make(5);
  ASSERT_TRUE(Moves(*small, *receiver_, 2));
  Until([&] { return small->counts().staging_in_use == 0; });
  const auto bytes = RandomBytes(60 << 10);
  const int64_t each = small->Footprint(static_cast<int64_t>(bytes.size()));
  const int64_t lone = small->Reserve(TicketOf(2, 1), each, 16 * each);
  EXPECT_EQ(lone, options_.staging_bytes / 2);
  small->Unreserve(TicketOf(2, 1));
  std::vector<fleet::v1::KvChunk> chunks;
  uint64_t ticket = 0;
  while (small->Reserve(TicketOf(2, ++ticket), each, each) > 0) {
    chunks.push_back(Ship(*small, bytes, 2, ticket));
  }
  EXPECT_EQ(chunks.size(), 8u);
  EXPECT_EQ(small->Reserve(TicketOf(3, 1), each, 16 * each), options_.staging_bytes / 3)
      << "its share beside the first, and one more";
  small->Unreserve(TicketOf(3, 1));
  EXPECT_EQ(small->Reserve(TicketOf(2, 100), each, each), 0);
  const int tasks = tasks_[5];
  std::vector<Arrival> arrivals(chunks.size());
  // They may have left as one group, which ends when all of it has been received.
  for (size_t i = 0; i < chunks.size(); ++i) Receive(*receiver_, chunks[i], arrivals[i]);
  Until([&] { return tasks_[5] > tasks; });
  EXPECT_EQ(small->Reserve(TicketOf(2, 100), each, each), each);
  small->Unreserve(TicketOf(2, 100));
  for (Arrival& arrival : arrivals) EXPECT_TRUE(Wait(arrival).ok());
  small->Flush(absl::InfiniteDuration());
  EXPECT_EQ(small->counts().sent_bytes, 300 + 8 * static_cast<int64_t>(bytes.size()));
}

// Small pieces of the share would make small steps of the engine.
TEST_F(NcclLinkTest, WhoHasMuchOnItsWayWaitsForAGoodPartOfItsShare) {
  options_.staging_bytes = int64_t{1} << 20;
  auto small = Make(5);
  nccl_.HoldTransfers(true);
  const auto bytes = RandomBytes(60 << 10);
  const int64_t each = small->Footprint(static_cast<int64_t>(bytes.size()));
  for (int i = 0; i < 6; ++i) Ship(*small, bytes);
  EXPECT_EQ(small->Reserve(TicketOf(2, 1), each, 8 * each), 0) << "two of eight are left";
  EXPECT_EQ(small->Reserve(TicketOf(2, 1), each, 2 * each), 2 * each) << "all that is wanted";
  small->Unreserve(TicketOf(2, 1));
}

// Results that the engine's loop no longer takes are told at the end: whoever waits for a write must not wait
// for ever.
TEST_F(NcclLinkTest, WhoCouldNotBeToldIsToldWhenTheLinkCloses) {
  const auto bytes = RandomBytes(100);
  nccl_.HoldTransfers(true);
  Arrival arrival;
  Receive(*receiver_, Ship(*sender_, bytes), arrival);
  Until([&] { return receiver_->counts().joined == 1 && receiver_->counts().staging_in_use > 0; });
  engine_.Close();
  nccl_.HoldTransfers(false);
  receiver_->Close();
  ASSERT_TRUE(arrival.status.has_value());
  EXPECT_EQ(arrival.status->code(), absl::StatusCode::kCancelled);
}

TEST_F(NcclLinkTest, AVanishedPeerFailsWhatWaitsForItAndNobodyElse) {
  auto other = Make(3);
  const auto bytes = RandomBytes(300);
  Arrival warm, warm_other;
  Receive(*receiver_, Ship(*sender_, bytes), warm);
  Receive(*other, Ship(*sender_, bytes, 3), warm_other);
  ASSERT_TRUE(Wait(warm).ok() && Wait(warm_other).ok());
  nccl_.HoldTransfers(true);
  Arrival lost;
  Receive(*receiver_, Ship(*sender_, bytes), lost);
  sender_.reset();  // killed in the middle of it
  EXPECT_EQ(WaitLong(lost).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(other->counts().failed, 0);
  EXPECT_EQ(other->counts().open_pairs, 1u);
  // It comes back under another incarnation: another peer, with no past.
  nccl_.HoldTransfers(false);
  auto reborn = Make(10);
  Arrival fresh;
  Receive(*receiver_, Ship(*reborn, bytes), fresh);
  EXPECT_TRUE(Wait(fresh).ok());
}

TEST_F(NcclLinkTest, WhatCameBeforeANewMeetingIsRefused) {
  const auto bytes = RandomBytes(100);
  const fleet::v1::KvChunk old = Ship(*sender_, bytes);
  // Nobody comes to the meeting.
  LongUntil([&] { return sender_->counts().failed > 0; });
  Pass(absl::Minutes(1));
  Arrival fresh, late;
  Receive(*receiver_, Ship(*sender_, bytes), fresh);
  EXPECT_TRUE(Wait(fresh).ok());
  Receive(*receiver_, old, late);
  EXPECT_EQ(Wait(late).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(late.status->message()), HasSubstr("made again"));
}

TEST_F(NcclLinkTest, TheSameTransferTwiceIsRefused) {
  const auto bytes = RandomBytes(100);
  const fleet::v1::KvChunk chunk = Ship(*sender_, bytes);
  Arrival first, second;
  Receive(*receiver_, chunk, first);
  EXPECT_TRUE(Wait(first).ok());
  Receive(*receiver_, chunk, second);
  EXPECT_EQ(Wait(second).code(), absl::StatusCode::kDataLoss);
}

TEST_F(NcclLinkTest, AnInlineChunkNamesTheFlag) {
  fleet::v1::KvChunk chunk;
  chunk.set_data("inline");
  Arrival arrival;
  Receive(*receiver_, chunk, arrival);
  EXPECT_EQ(Wait(arrival).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(arrival.status->message()), HasSubstr("--link"));
}

TEST_F(NcclLinkTest, WhoStillWaitsWhenTheLinkEndsIsTold) {
  const auto bytes = RandomBytes(100);
  nccl_.HoldTransfers(true);
  Arrival under_way, waiting;
  Receive(*receiver_, Ship(*sender_, bytes), under_way);
  Ship(*sender_, bytes);  // its message is lost, so that the next one waits
  Receive(*receiver_, Ship(*sender_, bytes), waiting);
  receiver_.reset();
  ASSERT_TRUE(under_way.status.has_value() && waiting.status.has_value());
  EXPECT_EQ(under_way.status->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(waiting.status->code(), absl::StatusCode::kCancelled);
}

TEST_F(NcclLinkTest, StagingMemoryIsBoundedAndComesBack) {
  options_.staging_bytes = int64_t{1} << 20;
  auto small = Make(5);
  const auto bytes = RandomBytes(200 << 10);
  std::vector<fleet::v1::KvChunk> chunks;
  for (int i = 0; i < 5; ++i) chunks.push_back(Ship(*small, bytes));
  fleet::v1::KvChunk one_more;
  one_more.set_incarnation(2);
  const std::span<const std::byte> piece = bytes;
  EXPECT_EQ(small->Ship({&piece, 1}, one_more).code(), absl::StatusCode::kUnavailable);
  std::vector<Arrival> arrivals(5);
  for (size_t i = 0; i < 5; ++i) Receive(*receiver_, chunks[i], arrivals[i]);
  for (Arrival& arrival : arrivals) EXPECT_TRUE(Wait(arrival).ok());
  Until([&] { return small->counts().sent_bytes == 5 * static_cast<int64_t>(bytes.size()); });
  Ship(*small, bytes);
}

}  // namespace
}  // namespace baton::transfer
