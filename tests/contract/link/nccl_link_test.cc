// What the nccl link promises beyond the contract of links: numbers that come in any order, payloads that are
// hurt on the way, and peers that vanish, over a NCCL with scripted failures.
#include "common/transfer/nccl/nccl_link.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/base/digest.h"
#include "common/base/mailbox.h"
#include "tests/fakes/fake_nccl.h"

namespace baton::transfer {
namespace {

using testing::HasSubstr;

class NcclLinkTest : public testing::Test {
 protected:
  struct Arrival {
    std::vector<std::byte> bytes;
    std::optional<absl::Status> status;
  };

  NcclLinkTest() { options_.pairs.join_timeout = options_.pairs.transfer_timeout = absl::Seconds(5); }

  std::unique_ptr<NcclLink> Make(uint64_t incarnation) {
    return std::make_unique<NcclLink>(
        nccl_.Api(), *payload_, clock_, Incarnation(incarnation),
        [this](absl::AnyInvocable<void()> task) { return engine_.PostAlways(std::move(task)); }, options_);
  }

  std::vector<std::byte> RandomBytes(size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }
  v1::KvChunk Ship(NcclLink& link, const std::vector<std::byte>& bytes, uint64_t to = 2) {
    v1::KvChunk chunk;
    chunk.set_incarnation(to);
    const std::span<const std::byte> piece = bytes;
    const absl::Status shipped = link.Ship({&piece, 1}, chunk);
    EXPECT_TRUE(shipped.ok()) << shipped;
    return chunk;
  }
  void Receive(NcclLink& link, const v1::KvChunk& chunk, Arrival& arrival) {
    arrival.bytes.assign(chunk.apart().bytes(), std::byte{0});
    const std::span<std::byte> piece = arrival.bytes;
    link.Receive(chunk, {&piece, 1}, [&arrival](absl::Status status) { arrival.status = std::move(status); });
  }
  absl::Status Wait(const Arrival& arrival) {
    while (!arrival.status.has_value()) {
      for (auto& task : engine_.WaitAndTakeAll(absl::InfiniteDuration())) task();
    }
    return *arrival.status;
  }

  // Time goes on while it waits: whatever the link's thread gets to first, its patience ends.
  absl::Status WaitLong(const Arrival& arrival) {
    while (!arrival.status.has_value()) {
      clock_.Advance(absl::Seconds(1));
      for (auto& task : engine_.WaitAndTakeAll(absl::Milliseconds(5))) task();
    }
    return *arrival.status;
  }

  static constexpr uint32_t kSeed = 61;
  std::mt19937 random_{kSeed};
  FakeNccl nccl_;
  FakeClock clock_;
  std::unique_ptr<Payload> payload_ = MakeHostPayload();
  Mailbox<absl::AnyInvocable<void()>> engine_{1000};
  NcclLinkOptions options_;
  std::unique_ptr<NcclLink> sender_ = Make(1), receiver_ = Make(2);
};

TEST_F(NcclLinkTest, MessagesMayComeInAnyOrder) {
  std::vector<std::vector<std::byte>> sent;
  std::vector<v1::KvChunk> chunks;
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
    const v1::KvChunk chunk = Ship(*sender_, sent.back());
    if (sent.size() % 3 != 0) continue;
    Receive(*receiver_, chunk, arrival);
    EXPECT_TRUE(Wait(arrival).ok()) << "seed " << kSeed;
    EXPECT_EQ(arrival.bytes, sent.back());
  }
  EXPECT_EQ(receiver_->counts().failed, 0);
  EXPECT_EQ(nccl_.ids(), 1);
  // What nobody asks for does not stay.
  clock_.Advance(options_.pairs.transfer_timeout + absl::Seconds(1));
  while (receiver_->counts().dropped_bytes == 0) std::this_thread::yield();
}

TEST_F(NcclLinkTest, AMessageMayComeAfterItsPayload) {
  const auto first = RandomBytes(3000), second = RandomBytes(200);
  const v1::KvChunk late = Ship(*sender_, first);
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
  v1::KvChunk chunk = Ship(*sender_, bytes);
  chunk.mutable_apart()->clear_before();
  chunk.set_crc32c(
      Crc32c(fmt::format("{} {} {} {} {} {} ", chunk.incarnation(), chunk.ticket_id(), chunk.apart().sender(),
                         chunk.apart().epoch(), chunk.apart().sequence(), chunk.apart().bytes()) +
             chunk.apart().meeting()));
  Arrival stranded;
  Receive(*receiver_, chunk, stranded);
  while (receiver_->counts().joined == 0) std::this_thread::yield();
  EXPECT_EQ(WaitLong(stranded).code(), absl::StatusCode::kUnavailable);
  // The sender notices by itself that nothing gets on, and rests.
  while (sender_->counts().failed == 0) clock_.Advance(absl::Seconds(1));
  clock_.Advance(absl::Minutes(2));
  Arrival again;
  Receive(*receiver_, Ship(*sender_, bytes), again);
  EXPECT_TRUE(Wait(again).ok());
  EXPECT_EQ(again.bytes, bytes);
  EXPECT_EQ(nccl_.ids(), 2);
}

TEST_F(NcclLinkTest, ASenderIsCongestedUntilWhatItSentHasLeftAndTheLoopIsWoken) {
  options_.staging_bytes = int64_t{1} << 20;
  auto small = Make(5);
  const auto bytes = RandomBytes(200 << 10);
  nccl_.HoldTransfers(true);
  std::vector<v1::KvChunk> chunks;
  while (!small->congested()) chunks.push_back(Ship(*small, bytes));
  EXPECT_EQ(chunks.size(), 3u) << "three of 224 KiB are more than half";
  std::vector<Arrival> arrivals(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) Receive(*receiver_, chunks[i], arrivals[i]);
  nccl_.HoldTransfers(false);
  for (Arrival& arrival : arrivals) EXPECT_TRUE(Wait(arrival).ok());
  while (small->congested()) std::this_thread::yield();
  small->Flush(absl::InfiniteDuration());
  EXPECT_EQ(small->counts().sent_bytes, 3 * static_cast<int64_t>(bytes.size()));
}

// What is told when the engine's loop takes no more is told at the end: whoever waits for a write must not
// wait for ever.
TEST_F(NcclLinkTest, WhoCouldNotBeToldIsToldWhenTheLinkCloses) {
  const auto bytes = RandomBytes(100);
  nccl_.HoldTransfers(true);
  Arrival arrival;
  Receive(*receiver_, Ship(*sender_, bytes), arrival);
  engine_.Close();
  nccl_.HoldTransfers(false);
  while (receiver_->counts().open_pairs == 0) std::this_thread::yield();
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
  const v1::KvChunk old = Ship(*sender_, bytes);
  nccl_.LosePeers();
  while (sender_->counts().failed == 0) clock_.Advance(absl::Milliseconds(1));
  clock_.Advance(absl::Minutes(1));
  Arrival fresh, late;
  Receive(*receiver_, Ship(*sender_, bytes), fresh);
  EXPECT_TRUE(Wait(fresh).ok());
  Receive(*receiver_, old, late);
  EXPECT_EQ(Wait(late).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(late.status->message()), HasSubstr("made again"));
}

TEST_F(NcclLinkTest, TheSameTransferTwiceIsRefused) {
  const auto bytes = RandomBytes(100);
  const v1::KvChunk chunk = Ship(*sender_, bytes);
  Arrival first, second;
  Receive(*receiver_, chunk, first);
  EXPECT_TRUE(Wait(first).ok());
  Receive(*receiver_, chunk, second);
  EXPECT_EQ(Wait(second).code(), absl::StatusCode::kDataLoss);
}

TEST_F(NcclLinkTest, AnInlineChunkNamesTheFlag) {
  v1::KvChunk chunk;
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
  std::vector<v1::KvChunk> chunks;
  for (int i = 0; i < 4; ++i) chunks.push_back(Ship(*small, bytes));
  v1::KvChunk one_more;
  one_more.set_incarnation(2);
  const std::span<const std::byte> piece = bytes;
  EXPECT_EQ(small->Ship({&piece, 1}, one_more).code(), absl::StatusCode::kUnavailable);
  std::vector<Arrival> arrivals(4);
  for (size_t i = 0; i < 4; ++i) Receive(*receiver_, chunks[i], arrivals[i]);
  for (Arrival& arrival : arrivals) EXPECT_TRUE(Wait(arrival).ok());
  while (small->counts().sent_bytes < 4 * static_cast<int64_t>(bytes.size())) std::this_thread::yield();
  Ship(*small, bytes);
}

}  // namespace
}  // namespace baton::transfer
