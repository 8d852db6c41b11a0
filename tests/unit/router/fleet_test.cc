#include "router/fleet/fleet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/telemetry/metrics.h"
#include "protocol/fleet/fingerprint_wire.h"

namespace baton::router::fleet {
namespace {

baton::fleet::v1::Fingerprint Print(const std::string& weights = "w") {
  baton::fleet::v1::Fingerprint fingerprint;
  fingerprint.set_protocol(1);
  fingerprint.set_weights(weights);
  return fingerprint;
}

// An incarnation of 0 is that of nobody else.
baton::fleet::v1::WatchEvent Hello(baton::fleet::v1::Role role, uint64_t incarnation = 0,
                                   const baton::fleet::v1::Fingerprint& fingerprint = Print()) {
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(1);
  baton::fleet::v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
  info->set_worker_id("w");
  info->set_role(role);
  info->set_incarnation(incarnation);
  info->set_vocabulary_tokens(100);
  *info->mutable_fingerprint() = fingerprint;
  return event;
}

baton::fleet::v1::WatchEvent LoadOf(uint64_t sequence, uint32_t running) {
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(sequence);
  event.mutable_delta()->mutable_load()->set_running(running);
  return event;
}

class FleetTest : public ::testing::Test {
 protected:
  telemetry::Metrics metrics_;
  Probe probe_{metrics_};
  Fleet fleet_{{.router_id = "me",
                .endpoints = {{"d0:1", Role::kDecode}, {"d1:1", Role::kDecode}, {"p0:1", Role::kPrefill}},
                .vocabulary = 100},
               probe_};
};

TEST_F(FleetTest, ReusesChunksWhereAllWorkersDo) {
  const auto hello = [](baton::fleet::v1::Role role, uint64_t incarnation, bool reuses) {
    baton::fleet::v1::WatchEvent event = Hello(role, incarnation);
    event.mutable_snapshot()->mutable_info()->set_chunk_reuse(reuses);
    return event;
  };
  ASSERT_TRUE(fleet_.OnEvent(0, hello(baton::fleet::v1::ROLE_DECODE, 1, true)).ok());
  EXPECT_TRUE(fleet_.view()->chunk_reuse);
  ASSERT_TRUE(fleet_.OnEvent(2, hello(baton::fleet::v1::ROLE_PREFILL, 2, false)).ok());
  EXPECT_FALSE(fleet_.view()->chunk_reuse);
  fleet_.OnDown(2, absl::UnavailableError("gone"));
  EXPECT_TRUE(fleet_.view()->chunk_reuse);
  ASSERT_TRUE(fleet_.OnEvent(1, hello(baton::fleet::v1::ROLE_DECODE, 3, false)).ok());
  EXPECT_FALSE(fleet_.view()->chunk_reuse);
}

// A worker's report is another process's word.
TEST(WorkerTest, BoundsNumbersThatNoWorkerCanHave) {
  Worker worker(Worker::Identity{.endpoint = 0,
                                 .address = "",
                                 .id = "w",
                                 .role = Role::kDecode,
                                 .incarnation = Incarnation(1),
                                 .fingerprint = {}},
                WorkerSlot(0));
  baton::fleet::v1::Load load;
  load.set_queued_tokens(UINT64_MAX);
  load.set_total_blocks(UINT64_MAX);
  load.set_free_blocks(UINT64_MAX / 2 + 1);
  load.set_cached_blocks(UINT64_MAX);
  load.set_leased_blocks(UINT64_MAX);
  for (const char* router : {"a", "b", "c"}) (*load.mutable_booked())[router].set_tokens(UINT64_MAX / 2);
  worker.Report(load, "me");
  for (const int64_t number : {worker.QueuedTokens(), worker.ContextTokens(), worker.TotalBlocks(),
                               worker.FreeBlocks(), worker.CachedBlocks(), worker.LeasedBlocks()}) {
    EXPECT_GT(number, 0);
    EXPECT_LT(number, int64_t{1} << 50);
  }
}

TEST(WorkerTest, DoesNotCountItsOwnRequestsTwice) {
  Worker worker(Worker::Identity{.endpoint = 0,
                                 .address = "",
                                 .id = "w",
                                 .role = Role::kDecode,
                                 .incarnation = Incarnation(1),
                                 .fingerprint = {}},
                WorkerSlot(0));
  worker.Book(10);
  worker.Book(10);
  baton::fleet::v1::Load load;
  load.set_running(5);
  baton::fleet::v1::Booked& mine = (*load.mutable_booked())["me"];
  mine.set_requests(2);
  mine.set_tokens(20);
  baton::fleet::v1::Booked& anothers = (*load.mutable_booked())["another"];
  anothers.set_requests(3);
  anothers.set_tokens(300);
  worker.Report(load, "me");
  EXPECT_EQ(worker.Requests(), 5);
  EXPECT_EQ(worker.ContextTokens(), 320);
  worker.Unbook(10);
  EXPECT_EQ(worker.Requests(), 4) << "an ended request leaves at once";
}

TEST_F(FleetTest, IsSettledWhenEveryoneAnsweredOrFailed) {
  EXPECT_FALSE(fleet_.settled());
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  ASSERT_TRUE(fleet_.OnEvent(2, Hello(baton::fleet::v1::ROLE_PREFILL)).ok());
  EXPECT_FALSE(fleet_.settled());
  fleet_.OnDown(1, absl::UnavailableError("connection refused"));
  EXPECT_TRUE(fleet_.settled());
  EXPECT_EQ(fleet_.view()->decode.size(), 1u);
  EXPECT_EQ(fleet_.view()->prefill.size(), 1u);
}

TEST_F(FleetTest, NamesTheAddressesWhenNobodyIsUp) {
  fleet_.OnDown(0, absl::UnavailableError("connection refused"));
  const absl::Status status = fleet_.NoDecodeWorker();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_NE(status.message().find("d0:1 (connection refused); d1:1 (not answered yet)"),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(status.message().find("p0:1"), absl::string_view::npos);
}

TEST_F(FleetTest, AGapIsDataLoss) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  ASSERT_TRUE(fleet_.OnEvent(0, LoadOf(2, 7)).ok());
  EXPECT_EQ(fleet_.view()->decode[0]->Requests(), 7);
  EXPECT_TRUE(absl::IsDataLoss(fleet_.OnEvent(0, LoadOf(4, 9))));
  EXPECT_EQ(fleet_.view()->decode[0]->Requests(), 7) << "what follows a gap is not applied";
  EXPECT_TRUE(absl::IsDataLoss(fleet_.OnEvent(1, LoadOf(2, 9)))) << "a delta before the snapshot";
}

TEST_F(FleetTest, ASnapshotOfTheSameIncarnationKeepsTheBookings) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  const Booking booking = fleet_.Book(fleet_.view()->decode[0], nullptr, 10, absl::UnixEpoch());
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  EXPECT_EQ(fleet_.view()->decode[0]->BookedRequests(), 1);
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE, 2)).ok());
  EXPECT_EQ(fleet_.view()->decode[0]->BookedRequests(), 0) << "a restarted worker owes nothing";
}

TEST_F(FleetTest, DrainingWorkersTakeNothing) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(2);
  event.mutable_delta()->set_draining(true);
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  EXPECT_TRUE(fleet_.view()->decode.empty());
  EXPECT_TRUE(fleet_.view()->leaving.empty()) << "it serves no fetches";
  EXPECT_NE(fleet_.NoDecodeWorker().message().find("draining"), absl::string_view::npos);
  event.set_sequence(3);
  event.mutable_delta()->set_draining(false);
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  EXPECT_EQ(fleet_.view()->decode.size(), 1u);
}

TEST_F(FleetTest, AWorkerWithAnotherFingerprintIsLeftOut) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  ASSERT_TRUE(fleet_.OnEvent(2, Hello(baton::fleet::v1::ROLE_PREFILL)).ok());
  ASSERT_TRUE(fleet_.OnEvent(1, Hello(baton::fleet::v1::ROLE_DECODE, 1, Print("other"))).ok());
  ASSERT_EQ(fleet_.view()->decode.size(), 1u);
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d0:1");
  EXPECT_NE(
      metrics_.Text().find("baton_router_fingerprint_mismatches_total{field=\"weights\",worker=\"d1:1\"} 1"),
      std::string::npos)
      << metrics_.Text();
  EXPECT_NE(fleet_.NoDecodeWorker().message().find("d1:1 (its fingerprint differs from d0:1's in weights)"),
            absl::string_view::npos);
  const auto left_out = [&](int is) {
    const std::string line =
        fmt::format("baton_router_worker_left_out{{field=\"weights\",worker=\"d1:1\"}} {}\n", is);
    return metrics_.Text().find(line) != std::string::npos;
  };
  EXPECT_TRUE(left_out(1));
  fleet_.OnDown(1, absl::UnavailableError("gone"));
  EXPECT_TRUE(left_out(0));
  ASSERT_TRUE(fleet_.OnEvent(1, Hello(baton::fleet::v1::ROLE_DECODE, 1, Print("other"))).ok());
  EXPECT_TRUE(left_out(1));
  // It comes back as the others are.
  ASSERT_TRUE(fleet_.OnEvent(1, Hello(baton::fleet::v1::ROLE_DECODE, 2)).ok());
  EXPECT_EQ(fleet_.view()->decode.size(), 2u);
  EXPECT_TRUE(left_out(0));
}

TEST_F(FleetTest, TheLargestGroupIsUsedEvenIfItCameLater) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE, 1, Print("old"))).ok());
  EXPECT_EQ(fleet_.view()->decode.size(), 1u);
  ASSERT_TRUE(fleet_.OnEvent(1, Hello(baton::fleet::v1::ROLE_DECODE, 1, Print("new"))).ok());
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d0:1") << "a tie stays with the first";
  ASSERT_TRUE(fleet_.OnEvent(2, Hello(baton::fleet::v1::ROLE_PREFILL, 1, Print("new"))).ok());
  ASSERT_EQ(fleet_.view()->decode.size(), 1u);
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d1:1");
  EXPECT_EQ(fleet_.view()->prefill.size(), 1u);
}

TEST_F(FleetTest, RefusesAnotherRoleOrVocabulary) {
  EXPECT_TRUE(absl::IsFailedPrecondition(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_PREFILL))));
  baton::fleet::v1::WatchEvent event = Hello(baton::fleet::v1::ROLE_DECODE);
  event.mutable_snapshot()->mutable_info()->set_vocabulary_tokens(101);
  const absl::Status status = fleet_.OnEvent(1, event);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("101 tokens, the router's model folder has 100"), absl::string_view::npos)
      << status;
  EXPECT_TRUE(fleet_.view()->decode.empty());
}

TEST_F(FleetTest, ABookingIsReleasedOnce) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  ASSERT_TRUE(fleet_.OnEvent(2, Hello(baton::fleet::v1::ROLE_PREFILL)).ok());
  const auto view = fleet_.view();
  int changes = 0;
  fleet_.SetListener([&] { ++changes; });
  Booking booking = fleet_.Book(view->decode[0], view->prefill[0], 10, absl::UnixEpoch());
  EXPECT_EQ(view->prefill[0]->QueuedTokens(), 10);
  booking.FirstToken();
  booking.FirstToken();
  EXPECT_EQ(view->prefill[0]->QueuedTokens(), 0);
  Booking moved = std::move(booking);
  booking.Release();
  EXPECT_EQ(view->decode[0]->BookedRequests(), 1);
  moved.Release();
  moved.Release();
  EXPECT_EQ(view->decode[0]->BookedRequests(), 0);
  EXPECT_EQ(changes, 1);
}

TEST_F(FleetTest, ARefusedWorkerIsTriedByOneRequest) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  const auto worker = fleet_.view()->decode[0];
  const absl::Time now = absl::UnixEpoch();
  fleet_.Book(worker, nullptr, 10, now).Refused(now);
  EXPECT_FALSE(worker->breaker().Allows(now)) << "its own end is no relief";
  EXPECT_TRUE(worker->breaker().Allows(now + CircuitBreaker::kPatience));
  ASSERT_TRUE(fleet_.OnEvent(0, LoadOf(2, 1)).ok());
  EXPECT_TRUE(worker->breaker().Allows(now));
  {
    Booking trial = fleet_.Book(worker, nullptr, 10, now);
    EXPECT_FALSE(worker->breaker().Allows(now)) << "one at a time";
  }
  EXPECT_TRUE(worker->breaker().Allows(now)) << "the trial ended without an answer";
  Booking trial = fleet_.Book(worker, nullptr, 10, now);
  trial.Accepted();
  EXPECT_TRUE(worker->breaker().Allows(now));
  fleet_.Book(worker, nullptr, 10, now).Refused(now);
  trial.Release();
  EXPECT_TRUE(worker->breaker().Allows(now)) << "a request that ran there ended";
}

TEST_F(FleetTest, EndpointsComeAndGoAndTheirNumbersDoNotComeBack) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  int changes = 0;
  fleet_.SetListener([&] { ++changes; });
  const int joined = fleet_.AddEndpoint({"d2:1", Role::kDecode});
  EXPECT_EQ(joined, 3);
  EXPECT_EQ(fleet_.view()->decode.size(), 1u) << "an endpoint is no worker yet";
  ASSERT_TRUE(fleet_.OnEvent(joined, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  EXPECT_EQ(fleet_.view()->decode.size(), 2u);
  changes = 0;
  fleet_.RemoveEndpoint(joined);
  EXPECT_EQ(changes, 1) << "what waits may have to go elsewhere, or fail";
  ASSERT_EQ(fleet_.view()->decode.size(), 1u);
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d0:1");
  fleet_.RemoveEndpoint(joined);
  EXPECT_EQ(fleet_.AddEndpoint({"d2:1", Role::kDecode}), 4) << "not the old number, even for the old address";
}

TEST_F(FleetTest, WhatRunsOnAWorkerOutlivesItsEndpoint) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  const auto worker = fleet_.view()->decode[0];
  Booking booking = fleet_.Book(worker, nullptr, 10, absl::UnixEpoch());
  booking.Accepted();
  fleet_.RemoveEndpoint(0);
  EXPECT_TRUE(fleet_.view()->decode.empty());
  EXPECT_TRUE(worker->departed());
  EXPECT_EQ(worker->BookedRequests(), 1);
  booking.Release();
  EXPECT_EQ(worker->BookedRequests(), 0);
}

TEST_F(FleetTest, AnEndpointThatHasGoneHearsNothing) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE)).ok());
  fleet_.RemoveEndpoint(0);
  EXPECT_TRUE(absl::IsNotFound(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE))));
  fleet_.OnDown(0, absl::UnavailableError("gone"));
  EXPECT_TRUE(fleet_.view()->decode.empty());
  EXPECT_EQ(fleet_.NoDecodeWorker().message().find("d0:1"), absl::string_view::npos);
}

TEST_F(FleetTest, IsNotSettledBeforeTheListingIsComplete) {
  for (int endpoint : {0, 1, 2}) fleet_.OnDown(endpoint, absl::UnavailableError("connection refused"));
  EXPECT_TRUE(fleet_.settled());
  fleet_.SetListing({.complete = false, .trouble = "dns:///d:1 (not resolved yet)"});
  EXPECT_FALSE(fleet_.settled());
  EXPECT_NE(fleet_.NoDecodeWorker().message().find("; dns:///d:1 (not resolved yet)."),
            absl::string_view::npos)
      << fleet_.NoDecodeWorker();
  fleet_.SetListing({});
  EXPECT_TRUE(fleet_.settled());
  const int joined = fleet_.AddEndpoint({"d2:1", Role::kDecode});
  EXPECT_FALSE(fleet_.settled()) << "a new endpoint is heard first";
  fleet_.RemoveEndpoint(joined);
  EXPECT_TRUE(fleet_.settled());
  for (int endpoint : {0, 1, 2}) fleet_.RemoveEndpoint(endpoint);
  EXPECT_NE(fleet_.NoDecodeWorker().message().find("none is listed"), absl::string_view::npos);
}

TEST_F(FleetTest, TheFingerprintGroupFollowsTheEndpoints) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE, 1, Print("old"))).ok());
  ASSERT_TRUE(fleet_.OnEvent(1, Hello(baton::fleet::v1::ROLE_DECODE, 1, Print("new"))).ok());
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d0:1");
  fleet_.RemoveEndpoint(0);
  ASSERT_EQ(fleet_.view()->decode.size(), 1u);
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d1:1");
}

class FleetIndexTest : public ::testing::Test {
 protected:
  static std::vector<kv::BlockHash> Chain() {
    return kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")),
                         std::vector<TokenId>(4 * kBlockTokens, TokenId(7)));
  }
  static std::string Bytes(size_t from, size_t to) {
    std::string bytes;
    for (size_t i = from; i < to; ++i) bytes += Chain()[i].bytes();
    return bytes;
  }
  static baton::fleet::v1::WatchEvent Holding(size_t blocks, uint64_t incarnation = 1) {
    baton::fleet::v1::WatchEvent event = Hello(baton::fleet::v1::ROLE_DECODE, incarnation);
    event.mutable_snapshot()->set_stored(Bytes(0, blocks));
    event.mutable_snapshot()->mutable_info()->set_block_hash_domain("domain");
    return event;
  }
  uint32_t Longest() {
    index::Matches matches;
    index_.Match(Chain(), &matches);
    return matches.longest;
  }

  telemetry::Metrics metrics_;
  Probe probe_{metrics_};
  index::PrefixIndex index_{{}};
  Fleet fleet_{
      {.router_id = "me", .endpoints = {{"d0:1", Role::kDecode}}, .vocabulary = 100}, probe_, &index_};
};

TEST_F(FleetIndexTest, LearnsFromSnapshotsAndDeltas) {
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(2)).ok());
  EXPECT_EQ(fleet_.view()->block_hash_domain, "domain");
  EXPECT_EQ(Longest(), 2u);
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(2);
  event.mutable_delta()->set_stored(Bytes(2, 4));
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  EXPECT_EQ(Longest(), 4u);
  event.set_sequence(3);
  event.mutable_delta()->set_stored("");
  event.mutable_delta()->set_evicted(Bytes(1, 2));
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  EXPECT_EQ(Longest(), 1u);
}

TEST_F(FleetIndexTest, LearnsWhatIsOnDisk) {
  baton::fleet::v1::WatchEvent event = Holding(1);
  event.mutable_snapshot()->set_disk_stored(Bytes(0, 3));
  event.mutable_snapshot()->mutable_disk_rate()->set_base_seconds(0.001);
  event.mutable_snapshot()->mutable_disk_rate()->set_bytes_per_second(1e9);
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  const auto on_disk = [&]() -> uint32_t {
    index::Matches matches;
    index_.Match(Chain(), &matches);
    const auto slot = fleet_.view()->decode.at(0)->disk_slot();
    return slot.has_value() ? matches.of(*slot) : 0;
  };
  EXPECT_EQ(on_disk(), 3u);
  EXPECT_EQ(fleet_.view()->decode.at(0)->disk_cost().base, 0.001);
  event = {};
  event.set_sequence(2);
  event.mutable_delta()->set_disk_stored(Bytes(3, 4));
  event.mutable_delta()->mutable_disk_rate()->set_base_seconds(0.002);
  event.mutable_delta()->mutable_disk_rate()->set_bytes_per_second(1e9);
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  EXPECT_EQ(on_disk(), 4u);
  EXPECT_EQ(fleet_.view()->decode.at(0)->disk_cost().base, 0.002);
  event = {};
  event.set_sequence(3);
  event.mutable_delta()->set_disk_evicted(Bytes(1, 2));
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  EXPECT_EQ(on_disk(), 1u);
  // A restart without a disk, or with an empty one.
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(1, 2)).ok());
  EXPECT_EQ(on_disk(), 0u);
  EXPECT_EQ(index_.stats().workers, 1);
}

TEST_F(FleetIndexTest, ANewSnapshotReplacesEverythingBefore) {
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(4)).ok());
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(1)).ok());
  EXPECT_EQ(Longest(), 1u);
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(3, 2)).ok());
  EXPECT_EQ(Longest(), 3u);
  EXPECT_EQ(index_.stats().workers, 1);
  EXPECT_EQ(index_.stats().pairs, 3);
}

TEST_F(FleetIndexTest, AWorkerThatIsDownHoldsNothingAndIsForgotten) {
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(4)).ok());
  const WorkerSlot slot = fleet_.view()->decode[0]->slot();
  const auto worker = fleet_.view()->decode[0];
  fleet_.TakeMoves();
  fleet_.OnDown(0, absl::UnavailableError("gone"));
  EXPECT_EQ(Longest(), 0u);
  EXPECT_EQ(index_.stats().workers, 0);
  EXPECT_TRUE(worker->departed());
  EXPECT_EQ(fleet_.TakeMoves().back(), (Fleet::Move{slot, Incarnation(1), false}));
}

// A gap: the same worker on another slot. A restart: another worker.
TEST_F(FleetIndexTest, MovesNameTheLifeThatMoves) {
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(4, 7)).ok());
  const WorkerSlot first = fleet_.view()->decode[0]->slot();
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(4, 7)).ok());
  const WorkerSlot second = fleet_.view()->decode[0]->slot();
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(1, 8)).ok());
  const WorkerSlot third = fleet_.view()->decode[0]->slot();
  EXPECT_EQ(fleet_.TakeMoves(), (std::vector<Fleet::Move>{{first, Incarnation(7), true},
                                                          {first, Incarnation(7), false},
                                                          {second, Incarnation(7), true},
                                                          {second, Incarnation(7), false},
                                                          {third, Incarnation(8), true}}));
}

// A name with A and AAAA records, or a host under two names.
TEST_F(FleetTest, AWorkerUnderTwoAddressesIsUsedOnce) {
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE, 5)).ok());
  ASSERT_TRUE(fleet_.OnEvent(1, Hello(baton::fleet::v1::ROLE_DECODE, 5)).ok());
  ASSERT_EQ(fleet_.view()->decode.size(), 1u);
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d0:1");
  // If one of the ways is cut, the other is there.
  fleet_.OnDown(0, absl::UnavailableError("no IPv6 here"));
  ASSERT_EQ(fleet_.view()->decode.size(), 1u);
  EXPECT_EQ(fleet_.view()->decode[0]->identity().address, "d1:1");
  ASSERT_TRUE(fleet_.OnEvent(0, Hello(baton::fleet::v1::ROLE_DECODE, 6)).ok());
  EXPECT_EQ(fleet_.view()->decode.size(), 2u) << "another one has taken the address";
}

TEST_F(FleetIndexTest, AnEndpointThatGoesLeavesTheIndex) {
  const int other = fleet_.AddEndpoint({"d1:1", Role::kDecode});
  ASSERT_TRUE(fleet_.OnEvent(0, Holding(4)).ok());
  ASSERT_TRUE(fleet_.OnEvent(other, Holding(2)).ok());
  const WorkerSlot slot = fleet_.view()->decode[0]->slot();
  fleet_.RemoveEndpoint(0);
  EXPECT_EQ(Longest(), 2u);
  EXPECT_EQ(index_.stats().workers, 1);
  EXPECT_EQ(index_.stats().pairs, 2);
  EXPECT_EQ(fleet_.TakeMoves().back(), (Fleet::Move{slot, Incarnation(1), false}));
}

TEST_F(FleetIndexTest, ARefusedSnapshotTellsTheIndexNothing) {
  baton::fleet::v1::WatchEvent event = Holding(4);
  event.mutable_snapshot()->mutable_info()->set_role(baton::fleet::v1::ROLE_PREFILL);
  EXPECT_FALSE(fleet_.OnEvent(0, event).ok());
  EXPECT_EQ(index_.stats().pairs, 0);
  EXPECT_EQ(index_.stats().workers, 0);
}

TEST(WorkerTest, KnowsSinceWhenItHasBeenBusy) {
  Worker worker(Worker::Identity{.endpoint = 0,
                                 .address = "",
                                 .id = "w",
                                 .role = Role::kPrefill,
                                 .incarnation = Incarnation(1),
                                 .fingerprint = {}},
                WorkerSlot(0));
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(worker.prompts().busy_since, absl::InfiniteFuture());
  const uint64_t first = worker.BookPrompt({.tokens = 100}, start);
  const uint64_t second = worker.BookPrompt({.tokens = 200}, start + absl::Seconds(1));
  EXPECT_EQ(worker.QueuedTokens(), 300);
  EXPECT_EQ(worker.Requests(), 2);
  EXPECT_EQ(worker.prompts().busy_since, start);
  worker.UnbookPrompt(first, start + absl::Seconds(3));
  EXPECT_EQ(worker.prompts().busy_since, start + absl::Seconds(3));
  EXPECT_EQ(worker.QueuedTokens(), 200);
  worker.UnbookPrompt(second, absl::InfiniteFuture());
  EXPECT_EQ(worker.prompts().busy_since, absl::InfiniteFuture());
  EXPECT_EQ(worker.QueuedTokens(), 0);
}

TEST(DifferingFieldTest, NamesEachField) {
  const baton::fleet::v1::Fingerprint base = Print();
  EXPECT_EQ(protocol::DifferingField(base, base), "");
  baton::fleet::v1::Fingerprint other = base;
  other.mutable_kv()->set_key_dtype("bf16");
  EXPECT_EQ(protocol::DifferingField(base, other), "kv.key_dtype");
  other.set_config("c");
  EXPECT_EQ(protocol::DifferingField(base, other), "config");
  other.set_protocol(2);
  EXPECT_EQ(protocol::DifferingField(base, other), "protocol");
  other = base;
  other.set_numerics("cpu-f32/1");
  EXPECT_EQ(protocol::DifferingField(base, other), "numerics");
}

baton::fleet::v1::PeerRate RateOf(const std::string& worker, double base, double bytes_per_second) {
  baton::fleet::v1::PeerRate rate;
  rate.set_worker(worker);
  rate.set_base_seconds(base);
  rate.set_bytes_per_second(bytes_per_second);
  return rate;
}

TEST_F(FleetTest, TakesDomainsAndRatesOfPeers) {
  baton::fleet::v1::Fingerprint print = Print();
  print.mutable_kv()->set_layers(10);
  print.mutable_kv()->set_kv_heads(2);
  print.mutable_kv()->set_head_dim(5);
  print.mutable_kv()->set_key_dtype("bf16");
  print.mutable_kv()->set_value_dtype("f8");  // 300 bytes a token
  baton::fleet::v1::WatchEvent decode = Hello(baton::fleet::v1::ROLE_DECODE, 1, print);
  decode.mutable_snapshot()->mutable_info()->set_link_domain("node-a");
  *decode.mutable_snapshot()->add_peer_rates() = RateOf("p0", 0.25, 3000);
  ASSERT_TRUE(fleet_.OnEvent(0, decode).ok());
  baton::fleet::v1::WatchEvent prefill = Hello(baton::fleet::v1::ROLE_PREFILL, 2, print);
  prefill.mutable_snapshot()->mutable_info()->set_worker_id("p0");
  prefill.mutable_snapshot()->mutable_info()->set_link_domain("node-a");
  ASSERT_TRUE(fleet_.OnEvent(2, prefill).ok());

  const auto view = fleet_.view();
  const Worker& decoder = *view->decode.at(0);
  const Worker& prefiller = *view->prefill.at(0);
  EXPECT_NE(decoder.domain_key(), 0u);
  EXPECT_EQ(decoder.domain_key(), prefiller.domain_key());
  ASSERT_EQ(decoder.peer_costs()->size(), 1u);
  EXPECT_EQ(decoder.peer_costs()->front().peer, prefiller.key());
  EXPECT_DOUBLE_EQ(decoder.peer_costs()->front().base, 0.25);
  EXPECT_DOUBLE_EQ(decoder.peer_costs()->front().token, 0.1);

  ASSERT_TRUE(fleet_.OnEvent(0, LoadOf(2, 1)).ok());
  EXPECT_EQ(decoder.peer_costs()->size(), 1u) << "a delta without rates changes none";
  baton::fleet::v1::WatchEvent delta = LoadOf(3, 1);
  *delta.mutable_delta()->add_peer_rates() = RateOf("p1", 0, 6000);
  ASSERT_TRUE(fleet_.OnEvent(0, delta).ok());
  ASSERT_EQ(decoder.peer_costs()->size(), 1u) << "one with rates has all of them";
  EXPECT_DOUBLE_EQ(decoder.peer_costs()->front().token, 0.05);
}

// Rates are another process's word, too.
TEST_F(FleetTest, LeavesOutRatesThatNoLinkHas) {
  baton::fleet::v1::WatchEvent hello = Hello(baton::fleet::v1::ROLE_DECODE, 1);
  baton::fleet::v1::Snapshot& snapshot = *hello.mutable_snapshot();
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, -inf, -1.0, 0.0, 1e300})
    *snapshot.add_peer_rates() = RateOf("p", 0, bad);
  for (const double bad : {nan, inf, -1.0, 1e9}) *snapshot.add_peer_rates() = RateOf("p", bad, 1e9);
  *snapshot.add_peer_rates() = RateOf("", 0, 1e9);
  ASSERT_TRUE(fleet_.OnEvent(0, hello).ok());
  EXPECT_TRUE(fleet_.view()->decode.at(0)->peer_costs()->empty());
  baton::fleet::v1::WatchEvent many = LoadOf(2, 1);
  for (int i = 0; i < 10'000; ++i)
    *many.mutable_delta()->add_peer_rates() = RateOf(std::to_string(i), 0, 1e9);
  ASSERT_TRUE(fleet_.OnEvent(0, many).ok());
  EXPECT_LE(fleet_.view()->decode.at(0)->peer_costs()->size(), 256u);
}

}  // namespace
}  // namespace baton::router::fleet
