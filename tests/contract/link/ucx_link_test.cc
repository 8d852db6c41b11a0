// The ucx link over the real UCX, between workers of one process, and over a fabric with faults: what is held
// and given up, by whom, and that nothing but what was packed is ever taken for it.
#include "transfer/ucx/ucx_link.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "common/base/mailbox.h"
#include "tests/fakes/faulty_fabric.h"
#include "transfer/ucx/open_ucx.h"

namespace baton::transfer {
namespace {

using testing::HasSubstr;

class UcxLinkTest : public testing::Test {
 protected:
  struct Arrival {
    std::vector<std::byte> bytes;
    std::optional<absl::Status> status;
  };
  struct Worker {
    FabricFaults faults;
    std::unique_ptr<Payload> payload;
    std::unique_ptr<UcxLink> link;
  };

  void SetUp() override {
    device::Memory* const host = &device::HostMemory();
    if (const auto probe = OpenUcx({&host, 1}); !probe.ok()) GTEST_SKIP() << probe.status();
    options_.staging_bytes = 1 << 20;
    sender_ = Make(1);
    receiver_ = Make(2);
  }

  std::unique_ptr<Worker> Make(uint64_t incarnation) {
    device::Memory* const host = &device::HostMemory();
    absl::StatusOr<Ucx> ucx = OpenUcx({&host, 1});
    EXPECT_TRUE(ucx.ok()) << ucx.status();
    auto worker = std::make_unique<Worker>();
    worker->payload = std::move(ucx->payload);
    worker->link = *UcxLink::Create(
        std::make_unique<FaultyFabric>(std::move(ucx->fabric), worker->faults), *worker->payload, clock_,
        Incarnation(incarnation),
        [this](absl::AnyInvocable<void()> task) { return engine_.PostAlways(std::move(task)); }, options_);
    return worker;
  }

  std::vector<std::byte> RandomBytes(size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }
  absl::StatusOr<fleet::v1::KvChunk> TryShip(const std::vector<std::byte>& bytes, uint64_t ticket = 7) {
    fleet::v1::KvChunk chunk;
    chunk.set_incarnation(2);
    chunk.set_ticket_id(ticket);
    const std::span<const std::byte> piece = bytes;
    if (absl::Status shipped = sender_->link->Ship({&piece, 1}, chunk); !shipped.ok()) return shipped;
    return chunk;
  }
  fleet::v1::KvChunk Ship(const std::vector<std::byte>& bytes, uint64_t ticket = 7) {
    return TryShip(bytes, ticket).value();
  }
  void Receive(const fleet::v1::KvChunk& chunk, Arrival& arrival, const std::string& from = "127.0.0.1:1") {
    arrival.bytes.assign(chunk.read().bytes(), std::byte{0});
    const std::span<std::byte> piece = arrival.bytes;
    receiver_->link->Receive(chunk, from, {&piece, 1},
                             [&arrival](absl::Status status) { arrival.status = std::move(status); });
  }
  void Until(const std::function<bool()>& happened) {
    while (!happened()) {
      for (auto& task : engine_.WaitAndTakeAll(absl::Milliseconds(1))) task();
    }
  }
  absl::Status Wait(const Arrival& arrival) {
    Until([&] { return arrival.status.has_value(); });
    return *arrival.status;
  }
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    for (Worker* worker : {sender_.get(), receiver_.get()}) {
      if (worker != nullptr) worker->faults.Wake();
    }
  }
  // Time passes in steps that the links' threads see.
  void PassUntil(absl::Duration step, const std::function<bool()>& happened) {
    while (!happened()) {
      Pass(step);
      for (auto& task : engine_.WaitAndTakeAll(absl::Milliseconds(20))) task();
    }
  }
  void ExpectMoves(size_t bytes = 5000) {
    const auto sent = RandomBytes(bytes);
    Arrival arrival;
    Receive(Ship(sent), arrival);
    ASSERT_TRUE(Wait(arrival).ok()) << *arrival.status;
    EXPECT_TRUE(arrival.bytes == sent);
  }
  void ExpectNothingHeld() {
    Until([&] { return sender_->link->counts().held == 0 && sender_->link->counts().staging_in_use == 0; });
    if (receiver_ != nullptr) Until([&] { return receiver_->link->counts().staging_in_use == 0; });
  }

  static constexpr uint32_t kSeed = 62;
  std::mt19937 random_{kSeed};
  FakeClock clock_;
  Mailbox<absl::AnyInvocable<void()>> engine_{1000};
  UcxLinkOptions options_;
  std::unique_ptr<Worker> sender_, receiver_;
};

TEST_F(UcxLinkTest, HoldsAPayloadUntilItWasRead) {
  const auto sent = RandomBytes(3000);
  const fleet::v1::KvChunk chunk = Ship(sent);
  EXPECT_EQ(sender_->link->counts().held, 1u);
  EXPECT_GT(sender_->link->counts().staging_in_use, 0);
  Arrival arrival;
  Receive(chunk, arrival);
  EXPECT_TRUE(Wait(arrival).ok());
  EXPECT_TRUE(arrival.bytes == sent);
  ExpectNothingHeld();
  EXPECT_EQ(sender_->link->counts().sent_bytes, 3000);
  EXPECT_EQ(receiver_->link->counts().received_bytes, 3000);
  EXPECT_EQ(sender_->link->counts().given_up, 0);
}

TEST_F(UcxLinkTest, ManyPayloadsInAnyOrderOverOneConnection) {
  std::vector<std::vector<std::byte>> sent;
  std::vector<fleet::v1::KvChunk> chunks;
  for (int i = 0; i < 40; ++i) {
    sent.push_back(RandomBytes(1 + random_() % 12000));
    chunks.push_back(Ship(sent.back()));
  }
  std::vector<Arrival> arrivals(40);
  std::vector<size_t> order(40);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::shuffle(order, random_);
  for (const size_t i : order) Receive(chunks[i], arrivals[i]);
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_TRUE(Wait(arrivals[i]).ok()) << *arrivals[i].status;
    EXPECT_TRUE(arrivals[i].bytes == sent[i]) << i << " seed " << kSeed;
  }
  EXPECT_EQ(receiver_->faults.connections(), 1);
  ExpectNothingHeld();
}

TEST_F(UcxLinkTest, MoreThanStagingHoldsGoesThroughInTurn) {
  // The receiver holds its reads: the sender is congested first, then refuses.
  receiver_->faults.Hold(Fabric::Region::kPayloads);
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::unique_ptr<Arrival>> arrivals;
  for (;;) {
    const auto bytes = RandomBytes(100 << 10);
    const auto chunk = TryShip(bytes);
    if (!chunk.ok()) {
      EXPECT_EQ(chunk.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(chunk.status().message(), HasSubstr("staging memory"));
      break;
    }
    sent.push_back(bytes);
    arrivals.push_back(std::make_unique<Arrival>());
    Receive(*chunk, *arrivals.back());
  }
  EXPECT_GE(sent.size(), 8u);
  EXPECT_TRUE(sender_->link->congested());
  receiver_->faults.LetGo();
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_TRUE(Wait(*arrivals[i]).ok());
    EXPECT_TRUE(arrivals[i]->bytes == sent[i]);
  }
  ExpectNothingHeld();
  EXPECT_FALSE(sender_->link->congested());
}

TEST_F(UcxLinkTest, ADamagedPayloadIsDataLossAndNothingIsWritten) {
  receiver_->faults.Damage();
  Arrival arrival;
  Receive(Ship(RandomBytes(4000)), arrival);
  EXPECT_EQ(Wait(arrival).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(arrival.bytes == std::vector<std::byte>(4000));
  ExpectNothingHeld();
}

// The stream broke on the sender's side first: it gives the payload up and packs another one where it lay,
// with a checksum of its own that is right.
TEST_F(UcxLinkTest, WhatWasPackedThereLaterIsNotTakenForThePayload) {
  for (const auto region : {Fabric::Region::kPayloads, Fabric::Region::kSlots}) {
    const auto first = RandomBytes(8000);
    const fleet::v1::KvChunk chunk = Ship(first, 7);
    Arrival arrival;
    receiver_->faults.Hold(region);  // not begun, or read and not confirmed
    Receive(chunk, arrival);
    Until([&] { return receiver_->faults.held() == 1; });
    sender_->link->Forget(Incarnation(2), TicketId(7));
    const auto second = RandomBytes(8000);
    const fleet::v1::KvChunk other = Ship(second, 8);
    ASSERT_EQ(other.read().address(), chunk.read().address()) << "it must lie where the first one lay";
    receiver_->faults.LetGo();
    EXPECT_EQ(Wait(arrival).code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(arrival.status->message(), HasSubstr("given the payload up"));
    EXPECT_TRUE(arrival.bytes == std::vector<std::byte>(8000)) << "nothing was written";
    Arrival next;
    Receive(other, next);
    EXPECT_TRUE(Wait(next).ok());
    EXPECT_TRUE(next.bytes == second);
    ExpectNothingHeld();
  }
  EXPECT_EQ(receiver_->link->counts().gone, 2);
}

TEST_F(UcxLinkTest, OnlyTheTicketsOwnPayloadsAreForgotten) {
  const auto sent = RandomBytes(100);
  const fleet::v1::KvChunk kept = Ship(sent, 1);
  (void)Ship(RandomBytes(100), 2);
  sender_->link->Forget(Incarnation(3), TicketId(1));
  sender_->link->Forget(Incarnation(2), TicketId(2));
  EXPECT_EQ(sender_->link->counts().held, 1u);
  EXPECT_EQ(sender_->link->counts().given_up, 1);
  Arrival arrival;
  Receive(kept, arrival);
  EXPECT_TRUE(Wait(arrival).ok());
  EXPECT_TRUE(arrival.bytes == sent);
  ExpectNothingHeld();
}

TEST_F(UcxLinkTest, AReceiverThatReadsNothingIsGivenUpAfterTwiceTheTimeout) {
  (void)Ship(RandomBytes(100));
  Pass(2 * options_.reads.timeout - absl::Seconds(1));
  const auto sent = RandomBytes(100);
  Arrival arrival;
  Receive(Ship(sent), arrival);
  EXPECT_TRUE(Wait(arrival).ok());
  Until([&] { return sender_->link->counts().sent_bytes == 100; });
  Pass(absl::Seconds(2));  // it has read something since
  EXPECT_EQ(sender_->link->counts().held, 1u);
  Pass(2 * options_.reads.timeout);
  ExpectNothingHeld();
  EXPECT_EQ(sender_->link->counts().given_up, 1);
}

TEST_F(UcxLinkTest, LostNoticesOnlyDelayTheSendersMemory) {
  receiver_->faults.LoseNotices();
  ExpectMoves();
  EXPECT_EQ(sender_->link->counts().held, 1u);
  PassUntil(options_.reads.timeout, [&] { return sender_->link->counts().held == 0; });
  ExpectNothingHeld();
}

TEST_F(UcxLinkTest, AHangingPeerCostsTheTimeoutAndThenRests) {
  receiver_->faults.Hold(Fabric::Region::kPayloads);
  Arrival first, second;
  Receive(Ship(RandomBytes(100)), first);
  Receive(Ship(RandomBytes(100)), second);
  Until([&] { return receiver_->faults.held() == 2; });
  Pass(options_.reads.timeout + absl::Milliseconds(1));
  EXPECT_EQ(Wait(first).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Wait(second).code(), absl::StatusCode::kUnavailable);
  receiver_->faults.LetGo();
  Until([&] { return receiver_->link->counts().staging_in_use == 0; });
  EXPECT_EQ(receiver_->link->counts().connections, 0u);
  EXPECT_EQ(receiver_->link->counts().resting, 1u);
  Arrival third;
  Receive(Ship(RandomBytes(100)), third);
  EXPECT_EQ(Wait(third).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(third.status->message(), HasSubstr("rests"));
  Pass(options_.reads.first_rest);
  ExpectMoves();
  EXPECT_EQ(receiver_->faults.connections(), 2);
}

TEST_F(UcxLinkTest, APeerWhoseStreamBrokeIsGivenLittleTime) {
  receiver_->faults.Hold(Fabric::Region::kPayloads);
  Arrival arrival, elsewhere;
  Receive(Ship(RandomBytes(100)), arrival);
  Until([&] { return receiver_->faults.held() == 1; });
  receiver_->link->Suspect("127.0.0.1:3");
  Pass(2 * options_.reads.suspect_timeout);
  EXPECT_FALSE(arrival.status.has_value());
  receiver_->link->Suspect("127.0.0.1:1");
  // The suspicion counts from when the thread has heard of it.
  PassUntil(options_.reads.suspect_timeout / 2, [&] { return arrival.status.has_value(); });
  EXPECT_LT(clock_.Now() - absl::UnixEpoch(), options_.reads.timeout) << "that would be the other deadline";
  EXPECT_EQ(arrival.status->code(), absl::StatusCode::kUnavailable);
}

TEST_F(UcxLinkTest, MemoryThatAClosedConnectionMayTouchIsNotUsedAgain) {
  receiver_->faults.Hold(Fabric::Region::kPayloads);
  receiver_->faults.HoldCloses();
  Arrival arrival;
  Receive(Ship(RandomBytes(100)), arrival);
  Until([&] { return receiver_->faults.held() == 1; });
  receiver_->faults.Break();
  EXPECT_EQ(Wait(arrival).code(), absl::StatusCode::kUnavailable) << "told at once";
  Until([&] { return receiver_->faults.closes_held() == 1; });
  EXPECT_GT(receiver_->link->counts().staging_in_use, 0) << "not given back yet";
  receiver_->faults.LetGoCloses();
  Until([&] { return receiver_->link->counts().staging_in_use == 0; });
}

TEST_F(UcxLinkTest, ABrokenConnectionIsMadeAgain) {
  ExpectMoves();
  receiver_->faults.Break();
  Until([&] { return receiver_->link->counts().connections == 0; });
  EXPECT_EQ(receiver_->link->counts().failed, 0) << "nothing was lost, so the peer need not rest";
  ExpectMoves();
}

TEST_F(UcxLinkTest, WithoutAWayToThePeerItSaysSo) {
  receiver_->faults.RefuseConnections(true);
  Arrival arrival;
  Receive(Ship(RandomBytes(100)), arrival);
  EXPECT_EQ(Wait(arrival).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(arrival.status->message(), HasSubstr("no way to the peer"));
  receiver_->faults.RefuseConnections(false);
  Pass(options_.reads.first_rest);
  ExpectMoves();
}

TEST_F(UcxLinkTest, UnusedConnectionsAreClosed) {
  ExpectMoves();
  Pass(options_.reads.idle + absl::Seconds(1));
  Until([&] { return receiver_->link->counts().connections == 0; });
  ExpectMoves();
}

// Its process is gone, and so are its endpoints and its memory; a new one is reached at once.
TEST_F(UcxLinkTest, ADeadSenderFailsAndItsSuccessorIsAnotherPeer) {
  ExpectMoves();
  const fleet::v1::KvChunk chunk = Ship(RandomBytes(100));
  sender_.reset();
  Arrival arrival;
  Receive(chunk, arrival);
  PassUntil(absl::Milliseconds(100), [&] { return arrival.status.has_value(); });
  EXPECT_EQ(arrival.status->code(), absl::StatusCode::kUnavailable);
  sender_ = Make(11);
  ExpectMoves();
}

TEST_F(UcxLinkTest, ADeadReceiverCostsTheSenderNothingButTheTime) {
  ExpectMoves();
  (void)Ship(RandomBytes(100));
  receiver_.reset();
  // It may have said of the first one, just before, that it had read it.
  PassUntil(options_.reads.timeout, [&] { return sender_->link->counts().held == 0; });
  ExpectNothingHeld();
  receiver_ = Make(2);
  ExpectMoves();
}

TEST_F(UcxLinkTest, AWorkerThatNamesAnothersMemoryReachesAConnectionOfItsOwn) {
  ExpectMoves();
  const auto sent = RandomBytes(100);
  Arrival arrival;
  Receive(Ship(sent), arrival, "127.0.0.1:2");
  EXPECT_TRUE(Wait(arrival).ok());
  EXPECT_EQ(receiver_->faults.connections(), 2);
  receiver_->link->Suspect("127.0.0.1:2");
  PassUntil(options_.reads.suspect_timeout, [&] { return receiver_->link->counts().connections == 1; });
  ExpectMoves();
  EXPECT_EQ(receiver_->faults.connections(), 2) << "the other's connection stays";
}

TEST_F(UcxLinkTest, MessagesThatSayNothingUsefulAreDataLoss) {
  const fleet::v1::KvChunk good = Ship(RandomBytes(100));
  const auto refused = [&](fleet::v1::KvChunk chunk, size_t bytes) {
    std::vector<std::byte> target(bytes);
    const std::span<std::byte> piece = target;
    std::optional<absl::Status> told;
    receiver_->link->Receive(chunk, "127.0.0.1:1", {&piece, 1},
                             [&](absl::Status status) { told = std::move(status); });
    return told.has_value() && absl::IsDataLoss(*told);
  };
  fleet::v1::KvChunk chunk = good;
  chunk.clear_read();
  EXPECT_TRUE(refused(chunk, 100)) << "no payload to read";
  chunk = good;
  chunk.mutable_read()->set_address(chunk.read().address() + 64);
  EXPECT_TRUE(refused(chunk, 100)) << "the header's checksum covers the address";
  EXPECT_TRUE(refused(good, 101)) << "another size";
  chunk = good;
  chunk.mutable_read()->set_worker(std::string(100 << 10, 'x'));
  EXPECT_TRUE(refused(chunk, 100)) << "an address without end";
}

TEST_F(UcxLinkTest, CloseTellsThoseWhoWait) {
  receiver_->faults.Hold(Fabric::Region::kPayloads);
  Arrival arrival;
  Receive(Ship(RandomBytes(100)), arrival);
  Until([&] { return receiver_->faults.held() == 1; });
  engine_.Close();  // the engine has ended
  receiver_->link->Close();
  ASSERT_TRUE(arrival.status.has_value());
  EXPECT_EQ(arrival.status->code(), absl::StatusCode::kCancelled);
  fleet::v1::KvChunk chunk;
  EXPECT_FALSE(receiver_->link->Ship({}, chunk).ok());
}

// UCX itself ended the process now and then when an endpoint was closed at that moment.
TEST_F(UcxLinkTest, IsClosedWhileItsConnectionComesUp) {
  std::vector<Arrival> arrivals(10);
  for (Arrival& arrival : arrivals) {
    // No worker outlives another: a number of a descriptor that passes from one UCX to another one of the
    // same process ends it, too.
    receiver_.reset();
    sender_.reset();
    sender_ = Make(1);
    receiver_ = Make(2);
    receiver_->faults.Hold(Fabric::Region::kPayloads);
    Receive(Ship(RandomBytes(100)), arrival);
    Until([&] { return receiver_->faults.held() == 1; });  // no read has waited for its connection
    receiver_->link->Close();
  }
  Until([&] {
    return std::ranges::all_of(arrivals, [](const Arrival& arrival) { return arrival.status.has_value(); });
  });
}

TEST_F(UcxLinkTest, FlushWaitsForReaders) {
  Arrival arrival;
  const fleet::v1::KvChunk chunk = Ship(RandomBytes(100));
  sender_->link->Flush(absl::Milliseconds(1));
  EXPECT_EQ(sender_->link->counts().held, 1u);
  Receive(chunk, arrival);
  sender_->link->Flush(absl::InfiniteDuration());
  EXPECT_EQ(sender_->link->counts().held, 0u);
  EXPECT_TRUE(Wait(arrival).ok());
}

}  // namespace
}  // namespace baton::transfer
