// A prefetch: blocks come into the cache one by one, and a prompt that waits holds none of them in the end.
#include "transfer/fetch/prefix_prefetch.h"

#include "tests/unit/transfer/fetch/two_workers.h"

namespace baton::fetch {
namespace {

class PrefixPrefetchTest : public TwoWorkersTest {
 protected:
  PrefixPrefetchTest() {
    Hold(*there_, tokens_, 8);
    trace_.trace_id = telemetry::NewTraceId();
    trace_.span_id = telemetry::NewSpanId();
  }

  void Begin(int64_t blocks = 8) {
    const auto chain = Chain(*here_, tokens_);
    prefetch_ = PrefixPrefetch::Begin(
        *fetcher_, here_->pool(), here_->RootFor(kv::TenantSalt(kSalt)), Peer(blocks), "request", tokens_,
        chain, 1, 1,
        {.prefetched = [this](int64_t count) { prefetched_ = count; }, .ended = [this] { ended_ = true; }},
        trace_);
  }

  const std::vector<TokenId> tokens_ = Tokens(3, 10);
  telemetry::TraceContext trace_;
  std::unique_ptr<PrefixPrefetch> prefetch_;
  int64_t prefetched_ = 0;
  bool ended_ = false;
};

TEST_F(PrefixPrefetchTest, OnlyWhatIsNotHereIsAskedFor) {
  Hold(*here_, tokens_, 3);
  Begin();
  ASSERT_NE(prefetch_, nullptr);
  EXPECT_EQ(prefetch_->fetch().asked(), 5);
  EXPECT_EQ(prefetch_->target(), 8);
  EXPECT_EQ(client_.last_trace(), trace_) << "the peer hears whose request it is";
  PumpAll();
  EXPECT_TRUE(ended_);
  EXPECT_EQ(prefetched_, 8);
  prefetch_.reset();
  ExpectHeldRight(*here_, tokens_, 8);
  ExpectNothingHeld();
}

TEST_F(PrefixPrefetchTest, WhatIsHereCanBeFoundBeforeTheRestIs) {
  Begin();
  for (int i = 0; i < 5; ++i) client_.Pump();
  ASSERT_GT(prefetched_, 1);
  ASSERT_LT(prefetched_, 8);
  EXPECT_EQ(here_->pool().MatchPrefix(Chain(*here_, tokens_)), prefetched_);
  const int64_t kept = prefetched_;
  prefetch_->Release();
  EXPECT_FALSE(prefetch_->running());
  prefetch_.reset();
  PumpAll();
  ExpectHeldRight(*here_, tokens_, kept);
  ExpectNothingHeld();
  EXPECT_FALSE(ended_) << "who lets go hears nothing more";
}

TEST_F(PrefixPrefetchTest, SomebodyElseComputesTheSameBlocksMeanwhile) {
  Begin();
  for (int i = 0; i < 4; ++i) client_.Pump();
  Hold(*here_, tokens_, 8);
  PumpAll();
  EXPECT_TRUE(ended_);
  prefetch_.reset();
  ExpectHeldRight(*here_, tokens_, 8);
  ExpectNothingHeld();
  EXPECT_EQ(here_->pool().counts().cached, 8) << "one copy";
}

TEST_F(PrefixPrefetchTest, LeasesComeWithTheBlocks) {
  Hold(*there_, tokens_, 6, {{.lease_class = kv::LeaseClass::k1h, .blocks = 6}}, clock_.Now());
  Hold(*here_, tokens_, 2, {}, clock_.Now());
  Begin();
  PumpAll();
  ASSERT_TRUE(ended_);
  prefetch_.reset();
  EXPECT_EQ(here_->pool().counts().leased, 6) << "those before them, too";
  ExpectNothingHeld();
}

TEST_F(PrefixPrefetchTest, WithoutRoomThereIsNone) {
  const auto others = here_->pool().Allocate(here_->pool().available() - 7).value();
  Begin();
  EXPECT_EQ(prefetch_, nullptr);
  here_->pool().Release(others);
  Hold(*here_, tokens_, 8);
  Begin();
  EXPECT_EQ(prefetch_, nullptr) << "everything is here";
  EXPECT_EQ(client_.calls_started(), 0u);
  ExpectNothingHeld();
}

TEST_F(PrefixPrefetchTest, ItsBlocksStayWhileALinkWritesThem) {
  receiver_.late = true;
  Begin();
  PumpAll();
  prefetch_->Release();
  EXPECT_TRUE(prefetch_->writing());
  EXPECT_EQ(here_->pool().counts().held, 8);
  for (auto& write : receiver_.writes) write();
  EXPECT_FALSE(prefetch_->writing());
  prefetch_.reset();
  PumpAll();
  ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::fetch
