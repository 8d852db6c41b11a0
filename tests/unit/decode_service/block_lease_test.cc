#include "decode_service/block_lease.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/base/digest.h"
#include "decode_service/sequence.h"

namespace baton::decode_service {
namespace {

constexpr kv::KvLayout kLayout = {.layers = 1, .kv_heads = 1, .head_dim = 8};

// Keeps the callbacks of the last call for the test.
class HeldCalls final : public PrefillClient {
 public:
  std::unique_ptr<PrefillCall> Call(const std::string&, fleet::v1::PrefillRequest, absl::Time,
                                    const telemetry::TraceContext&, Callbacks callbacks) override {
    last = std::move(callbacks);
    class Quiet final : public PrefillCall {
      void Next() override {}
    };
    return std::make_unique<Quiet>();
  }
  Callbacks last;
};

// A link whose writes end when the test says so.
class HeldWrites final : public transfer::LinkReceiver {
 public:
  std::string_view name() const override { return "held"; }
  void Receive(const fleet::v1::KvChunk&, std::string_view, transfer::Pieces, Done done) override {
    writes.push_back(std::move(done));
  }
  std::vector<Done> writes;
};

class BlockLeasesTest : public testing::Test {
 protected:
  BlockLease Lease(int64_t tokens) {
    BlockLease lease{.kv = std::make_unique<engine::SequenceKv>(pool_, kv::BlockHash())};
    EXPECT_TRUE(lease.kv->Reserve(std::vector<TokenId>(static_cast<size_t>(tokens)), tokens).ok());
    return lease;
  }
  // A hand-off of all blocks of the lease that has begun to write the first of them.
  void StartWriting(BlockLease& lease) {
    protocol::Ticket ticket{Incarnation(1), TicketId(1), 0, {}};
    for (const BlockId block : lease.kv->blocks()) ticket.generations.push_back(pool_.generation(block));
    fleet::v1::KvChunk chunk;
    chunk.set_incarnation(1);
    chunk.set_ticket_id(1);
    chunk.add_generations(ticket.generations[0].value());
    chunk.set_layers(1);
    lease.handoff = std::make_unique<Handoff>(
        "prefill-0", std::move(ticket), lease.kv->blocks(), store_, link_, 4,
        Handoff::Callbacks{.logits = [](std::span<const float>, const fleet::v1::PrefillDone&) {},
                           .ended = [this](const absl::Status&) { ++ended_; }});
    lease.handoff->Start(calls_, "address", {}, absl::InfiniteFuture());
    fleet::v1::PrefillEvent event;
    *event.mutable_chunk() = chunk;
    calls_.last.event(std::move(event));
    ASSERT_EQ(link_.writes.size(), 1u);
  }
  int64_t held() const { return pool_.counts().held; }

  kv::BlockPool pool_{8};
  kv::KvStore store_ = kv::KvStore::Create(kLayout, 8).value();
  HeldCalls calls_;
  HeldWrites link_;
  int ended_ = 0;
  BlockLeases leases_;
};

TEST_F(BlockLeasesTest, BlocksThatNothingUsesGoBackAtOnce) {
  BlockLease lease = Lease(40);
  EXPECT_EQ(held(), 3);
  leases_.Release(std::move(lease));
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(leases_.pending(), 1u) << "the objects stay: this may have been called by one of them";
  leases_.ReleaseFinished();
  EXPECT_EQ(leases_.pending(), 0u);
}

TEST_F(BlockLeasesTest, BlocksOutliveTheStepsThatWereLaunchedBefore) {
  leases_.StepLaunched();
  leases_.StepLaunched();
  leases_.StepCompleted();
  leases_.Release(Lease(16));
  leases_.StepLaunched();  // does not use them
  leases_.ReleaseFinished();
  EXPECT_EQ(held(), 1);
  leases_.StepCompleted();
  leases_.ReleaseFinished();
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(leases_.pending(), 0u);
}

TEST_F(BlockLeasesTest, BlocksOutliveAWriteThatHasBegun) {
  BlockLease lease = Lease(32);
  StartWriting(lease);
  leases_.Release(std::move(lease), std::make_unique<Sequence>());
  leases_.ReleaseFinished();
  EXPECT_EQ(held(), 2);
  EXPECT_EQ(leases_.pending(), 1u);
  link_.writes.front()(absl::OkStatus());
  leases_.ReleaseFinished();
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(leases_.pending(), 0u);
  EXPECT_EQ(ended_, 0) << "a released hand-off calls nobody";
}

TEST_F(BlockLeasesTest, AHandOffAloneMayBeReleased) {
  BlockLease lease = Lease(32);
  StartWriting(lease);
  link_.writes.front()(absl::OkStatus());
  leases_.Release({.handoff = std::move(lease.handoff)});
  EXPECT_EQ(leases_.pending(), 1u);
  leases_.ReleaseFinished();
  EXPECT_EQ(leases_.pending(), 0u);
  EXPECT_EQ(held(), 2) << "the blocks are still leased";
}

}  // namespace
}  // namespace baton::decode_service
