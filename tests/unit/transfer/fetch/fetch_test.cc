// A fetch over a scripted link: what a holder, a network or a restart can do to it, and that none of it
// leaves a wrong byte or a block behind.
#include "transfer/fetch/fetch.h"

#include <gmock/gmock.h>

#include "common/base/digest.h"
#include "tests/unit/transfer/fetch/two_workers.h"

namespace baton::fetch {
namespace {

using ::testing::HasSubstr;

class FetchTest : public TwoWorkersTest {
 protected:
  static constexpr int64_t kBlocks = 8;

  FetchTest() { Hold(*there_, tokens_, kBlocks); }

  // Asks for those of the first `count` blocks that are not here, into blocks of a sequence's own.
  void Start(int64_t count = kBlocks, const std::string& salt = kSalt) {
    kv_ = std::make_unique<engine::SequenceKv>(here_->pool(), here_->RootFor(kv::TenantSalt(salt)));
    ASSERT_TRUE(kv_->Reserve(std::span(tokens_).first(count * kBlockTokens + 1), count * kBlockTokens).ok());
    const auto chain = Chain(*here_, tokens_, salt);
    const int64_t from = committed_ = kv_->cached_tokens() / kBlockTokens;
    ended_.reset();
    fetch_ = fetcher_->Start(
        Peer(count), "request", std::span(chain).first(count).subspan(from), kv_->blocks().subspan(from), 1,
        1,
        {.leased = [this, from](
                       std::span<const kv::HeldLease> leases) { kv_->Inherit(leases, from, clock_.Now()); },
         .committed =
             [this, from](int64_t blocks) {
               EXPECT_GT(from + blocks, committed_);
               committed_ = from + blocks;
               kv_->Computed(tokens_, committed_ * kBlockTokens);
             },
         .ended = [this](const absl::Status& status) { ended_ = status; }});
  }
  void LetGo() {
    fetch_->Release();
    kv_->Release();
    fetch_.reset();
    PumpAll();
  }

  const std::vector<TokenId> tokens_ = Tokens(5, 12);
  std::unique_ptr<engine::SequenceKv> kv_;
  std::unique_ptr<Fetch> fetch_;
  int64_t committed_ = 0;
  std::optional<absl::Status> ended_;
};

TEST_F(FetchTest, EveryByteArrives) {
  Start();
  PumpAll();
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(committed_, kBlocks);
  LetGo();
  ExpectHeldRight(*here_, tokens_, kBlocks);
  ExpectNothingHeld();
  EXPECT_TRUE(HasMetric(R"(baton_peer_fetches_total{link="host",outcome="complete"} 1)"));
  EXPECT_TRUE(HasMetric(R"(baton_peer_fetched_blocks_total{link="host"} 8)"));
}

TEST_F(FetchTest, WhatTheHolderLacksEndsTheRunAndIsNoError) {
  Start(11);
  PumpAll();
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(fetch_->found(), kBlocks);
  LetGo();
  ExpectHeldRight(*here_, tokens_, kBlocks);
  ExpectNothingHeld();
}

TEST_F(FetchTest, LeasesComeWithTheirBlocks) {
  Hold(*there_, tokens_, 6,
       {{.lease_class = kv::LeaseClass::k1h, .blocks = 4}, {.lease_class = kv::LeaseClass::k5m, .blocks = 6}},
       clock_.Now());
  here_->pool().Advance(clock_.Now());
  Hold(*here_, tokens_, 2, {}, clock_.Now());  // without a lease
  Start();
  PumpAll();
  EXPECT_TRUE(ended_->ok()) << *ended_;
  LetGo();
  EXPECT_EQ(here_->pool().counts().cached, kBlocks);
  EXPECT_EQ(here_->pool().counts().leased, 6);
  EXPECT_EQ(here_->pool().lease_counts(kv::LeaseClass::k1h).granted, 4);
  EXPECT_EQ(here_->pool().lease_counts(kv::LeaseClass::k5m).granted, 2);
  here_->pool().Advance(clock_.Now() + absl::Minutes(6));
  EXPECT_EQ(here_->pool().counts().leased, 4);
  here_->pool().Advance(clock_.Now() + absl::Minutes(61));
  EXPECT_EQ(here_->pool().counts().leased, 0);
  ExpectNothingHeld();
}

TEST_F(FetchTest, AWorkerThatTellsOfNoLeasesHandsNoneOver) {
  Hold(*there_, tokens_, 6, {{.lease_class = kv::LeaseClass::k1h, .blocks = 6}}, clock_.Now());
  client_.SetFault([](int, fleet::v1::FetchEvent& event, bool&) {
    if (event.has_found()) event.mutable_found()->clear_leases();  // as older ones
    return absl::OkStatus();
  });
  Start();
  PumpAll();
  EXPECT_TRUE(ended_->ok()) << *ended_;
  LetGo();
  EXPECT_EQ(here_->pool().counts().leased, 0);
  ExpectHeldRight(*here_, tokens_, kBlocks);
}

TEST_F(FetchTest, AnotherTenantsBlocksAreNotFound) {
  Start(kBlocks, "another salt");
  PumpAll();
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(fetch_->found(), 0);
  LetGo();
  ExpectNothingHeld();
  EXPECT_TRUE(HasMetric(R"(baton_peer_fetches_total{link="host",outcome="missed"} 1)"));
}

struct Broken {
  const char* name;
  const char* message;  // of the end
  // Changes the event with this index (0 is Found), or ends the call.
  std::function<absl::Status(fleet::v1::FetchEvent&, bool& again)> fault;
  int index = 4;
};

class BrokenFetchTest : public FetchTest, public ::testing::WithParamInterface<Broken> {};

TEST_P(BrokenFetchTest, KeepsWhatWasCommittedAndLetsGoOfTheRest) {
  const Broken& broken = GetParam();
  bool done = false;
  client_.SetFault([&](int index, fleet::v1::FetchEvent& event, bool& again) {
    if (done || index != broken.index) return absl::OkStatus();
    done = true;
    return broken.fault(event, again);
  });
  Start();
  PumpAll();
  ASSERT_TRUE(done);
  ASSERT_TRUE(ended_.has_value()) << "nobody waits for ever";
  EXPECT_FALSE(ended_->ok());
  EXPECT_THAT(ended_->message(), HasSubstr(broken.message));
  const int64_t kept = committed_;
  LetGo();
  ExpectHeldRight(*here_, tokens_, kept);
  ExpectNothingHeld();
  EXPECT_TRUE(HasMetric(R"(baton_peer_fetches_total{link="host",outcome="failed"} 1)"));
  if (kept == kBlocks) return;  // the holder had only miscounted
  // The next one gets the rest.
  Start();
  PumpAll();
  LetGo();
  ExpectHeldRight(*here_, tokens_, kBlocks);
  ExpectNothingHeld();
}

fleet::v1::KvChunk& Chunk(fleet::v1::FetchEvent& event) { return *event.mutable_chunk(); }

INSTANTIATE_TEST_SUITE_P(
    Faults, BrokenFetchTest,
    ::testing::Values(Broken{"Cut", "connection reset",
                             [](auto&, bool&) { return absl::UnavailableError("connection reset"); }},
                      Broken{"CutBeforeFound", "connection reset",
                             [](auto&, bool&) { return absl::UnavailableError("connection reset"); }, 0},
                      Broken{"Duplicate", "sent twice",
                             [](auto&, bool& again) {
                               again = true;
                               return absl::OkStatus();
                             }},
                      Broken{"OneBit", "checksum",
                             [](auto& event, bool&) {
                               (*Chunk(event).mutable_data())[100] ^= 1;
                               return absl::OkStatus();
                             }},
                      Broken{"Truncated", "bytes where its blocks take",
                             [](auto& event, bool&) {
                               Chunk(event).mutable_data()->resize(Chunk(event).data().size() / 2);
                               return absl::OkStatus();
                             }},
                      Broken{"StaleGeneration", "late write refused",
                             [](auto& event, bool&) {
                               Chunk(event).set_generations(0, Chunk(event).generations(0) + 1);
                               return absl::OkStatus();
                             }},
                      // The caller restarted, and hears what was meant for its former life.
                      Broken{"OtherIncarnation", "late write refused",
                             [](auto& event, bool&) {
                               Chunk(event).set_incarnation(78);
                               return absl::OkStatus();
                             }},
                      Broken{"OtherTicket", "late write refused",
                             [](auto& event, bool&) {
                               Chunk(event).set_ticket_id(999);
                               return absl::OkStatus();
                             }},
                      Broken{"BlockOutside", "covers blocks",
                             [](auto& event, bool&) {
                               Chunk(event).set_first_block(kBlockTokens);
                               return absl::OkStatus();
                             }},
                      Broken{"Empty", "empty event",
                             [](auto& event, bool&) {
                               event.Clear();
                               return absl::OkStatus();
                             }},
                      Broken{"MoreThanAsked", "found 9 blocks of 8",
                             [](auto& event, bool&) {
                               event.mutable_found()->set_blocks(9);
                               return absl::OkStatus();
                             },
                             0},
                      Broken{"LeaseOfMore", "a lease of 9 blocks of the 8",
                             [](auto& event, bool&) {
                               fleet::v1::HeldLease& lease = *event.mutable_found()->add_leases();
                               lease.set_blocks(9);
                               lease.set_ttl(v1::CACHE_TTL_5M);
                               return absl::OkStatus();
                             },
                             0},
                      Broken{"LeaseForEver", "longer than its TTL",
                             [](auto& event, bool&) {
                               fleet::v1::HeldLease& lease = *event.mutable_found()->add_leases();
                               lease.set_blocks(8);
                               lease.set_ttl(v1::CACHE_TTL_1H);
                               lease.set_seconds_left(UINT32_MAX);
                               return absl::OkStatus();
                             },
                             0},
                      Broken{"FoundTwice", "after it had said so",
                             [](auto&, bool& again) {
                               again = true;
                               return absl::OkStatus();
                             },
                             0},
                      Broken{"FoundLess", "ended its stream after 8 of 5 blocks",
                             [](auto& event, bool&) {
                               event.mutable_found()->set_blocks(5);
                               return absl::OkStatus();
                             },
                             0}),
    [](const auto& info) { return info.param.name; });

TEST_F(FetchTest, AMissingChunkIsNoticedAtTheEnd) {
  client_.SetFault([](int index, fleet::v1::FetchEvent& event, bool&) {
    // The chunk of block 3 never comes; in its place that of block 4, and so on.
    if (index == 4) *event.mutable_found() = fleet::v1::FetchFound();
    return absl::OkStatus();
  });
  Start();
  PumpAll();
  EXPECT_FALSE(ended_->ok());
  EXPECT_EQ(committed_, 3);
  LetGo();
  ExpectHeldRight(*here_, tokens_, 3);
  ExpectNothingHeld();
}

TEST_F(FetchTest, AHolderThatRestartedHasNothing) {
  const auto fresh = MakeEngine(24);
  PeerServer server({}, *fresh, sender_, server_probe_);
  client_.AddPeer("there", *fresh, server);
  Start();
  PumpAll();
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(fetch_->found(), 0);
  LetGo();
  ExpectNothingHeld();
}

TEST_F(FetchTest, NobodyAtTheAddress) {
  const auto chain = Chain(*here_, tokens_);
  auto blocks = here_->pool().Allocate(2).value();
  fleet::v1::PeerPrefix peer = Peer(2);
  peer.set_address("nowhere");
  const auto fetch = fetcher_->Start(peer, "request", std::span(chain).first(2), blocks, 1, 1,
                                     {.committed = [](int64_t) { FAIL(); },
                                      .ended = [this](const absl::Status& status) { ended_ = status; }});
  PumpAll();
  EXPECT_TRUE(absl::IsUnavailable(*ended_));
  here_->pool().Release(blocks);
  ExpectNothingHeld();
}

TEST_F(FetchTest, ReleasedAtAnyPointItLeavesNothingBehind) {
  for (int after = 0; after < 12; ++after) {
    SCOPED_TRACE(after);
    Start();
    for (int i = 0; i < after; ++i) client_.Pump();
    LetGo();
    ExpectNothingHeld();
    // Empty again.
    here_->pool().Release(here_->pool().Allocate(here_->pool().available()).value());
  }
}

TEST_F(FetchTest, BlocksStayUntilAWriteThatHasBegunIsOver) {
  receiver_.late = true;
  Start();
  PumpAll();
  ASSERT_FALSE(receiver_.writes.empty());
  EXPECT_TRUE(fetch_->writing());
  fetch_->Release();
  EXPECT_TRUE(fetch_->writing());
  for (auto& write : receiver_.writes) write();
  EXPECT_FALSE(fetch_->writing());
  EXPECT_EQ(committed_, 0) << "nothing counts after the release";
  kv_->Release();
  fetch_.reset();
  PumpAll();
  ExpectNothingHeld();
}

TEST_F(FetchTest, AnEndIsToldAfterTheLastWrite) {
  receiver_.late = true;
  client_.SetFault([](int index, fleet::v1::FetchEvent&, bool&) {
    return index == 3 ? absl::UnavailableError("connection reset") : absl::OkStatus();
  });
  Start();
  PumpAll();
  EXPECT_FALSE(ended_.has_value());
  for (auto& write : receiver_.writes) write();
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*ended_));
  LetGo();
  ExpectNothingHeld();
}

TEST_F(FetchTest, TheForecastDecidesAndLearns) {
  EXPECT_FALSE(fetcher_->Worthwhile(Peer(8), 8, 0, 1e-3)) << "a few round trips take longer";
  EXPECT_TRUE(fetcher_->Worthwhile(Peer(8), 8, 0, 1));
  EXPECT_TRUE(fetcher_->Worthwhile(Peer(8), 8, 1, 1e-3)) << "the wait hides it";
  EXPECT_FALSE(fetcher_->Worthwhile(Peer(0), 0, 1, 1));
  fleet::v1::PeerPrefix self = Peer(8);
  self.set_worker("here");
  EXPECT_FALSE(fetcher_->Worthwhile(self, 8, 1, 1)) << "from itself";
  EXPECT_FALSE(fetcher_->Worthwhile(fleet::v1::PeerPrefix(), 8, 1, 1)) << "from nowhere";
  const double before = fetcher_->Seconds(kBlocks);
  for (int i = 0; i < 20; ++i) {
    Start();
    clock_.Advance(absl::Seconds(2));
    PumpAll();
    LetGo();
    here_->pool().Release(here_->pool().Allocate(here_->pool().available()).value());
  }
  EXPECT_GT(fetcher_->Seconds(kBlocks), 10 * before);
  EXPECT_FALSE(fetcher_->Worthwhile(Peer(8), 8, 0, 1)) << "this link is slow";
  MakeFetcher({.always = true});
  EXPECT_TRUE(fetcher_->Worthwhile(Peer(8), 8, 0, 0));
}

TEST_F(FetchTest, AFetchThatLagsIsNoLongerWorthTheWait) {
  Start();
  EXPECT_TRUE(fetcher_->WorthWaiting(*fetch_, 0)) << "every fetch gets a little patience";
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_FALSE(fetcher_->WorthWaiting(*fetch_, 0.05)) << "nothing has come";
  EXPECT_TRUE(fetcher_->WorthWaiting(*fetch_, 1));
  for (int i = 0; i < 7; ++i) client_.Pump();
  ASSERT_GE(fetch_->committed(), 4);
  ASSERT_LT(fetch_->committed(), kBlocks);
  EXPECT_TRUE(fetcher_->WorthWaiting(*fetch_, 0.11)) << "at its pace the rest takes no longer than what came";
  EXPECT_FALSE(fetcher_->WorthWaiting(*fetch_, 0.001));
  EXPECT_EQ(client_.last_patience(), absl::Seconds(2)) << "wait and spared computing";
  LetGo();
  ExpectNothingHeld();
}

TEST_F(FetchTest, NoMoreRunAtOnceThanMay) {
  MakeFetcher({.max_fetches = 1});
  EXPECT_TRUE(fetcher_->Worthwhile(Peer(8), 8, 1, 1));
  Start();
  EXPECT_FALSE(fetcher_->Worthwhile(Peer(8), 8, 1, 1));
  LetGo();
  EXPECT_TRUE(fetcher_->Worthwhile(Peer(8), 8, 1, 1));
}

}  // namespace
}  // namespace baton::fetch
