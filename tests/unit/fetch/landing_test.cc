// A landing: blocks come into the cache one by one, and a prompt that waits holds none of them in the end.
#include "common/fetch/landing.h"

#include "tests/unit/fetch/two_workers.h"

namespace baton::fetch {
namespace {

class LandingTest : public TwoWorkersTest {
 protected:
  LandingTest() { Hold(*there_, tokens_, 8); }

  void Begin(int64_t blocks = 8) {
    const auto chain = Chain(*here_, tokens_);
    landing_ = Landing::Begin(
        *fetcher_, here_->pool(), here_->RootFor(kv::TenantSalt(kSalt)), Peer(blocks), "request", tokens_,
        chain, 1, 1,
        {.landed = [this](int64_t count) { landed_ = count; }, .ended = [this] { ended_ = true; }});
  }

  const std::vector<TokenId> tokens_ = Tokens(3, 10);
  std::unique_ptr<Landing> landing_;
  int64_t landed_ = 0;
  bool ended_ = false;
};

TEST_F(LandingTest, OnlyWhatIsNotHereIsAskedFor) {
  Hold(*here_, tokens_, 3);
  Begin();
  ASSERT_NE(landing_, nullptr);
  EXPECT_EQ(landing_->fetch().asked(), 5);
  EXPECT_EQ(landing_->target(), 8);
  PumpAll();
  EXPECT_TRUE(ended_);
  EXPECT_EQ(landed_, 8);
  landing_.reset();
  ExpectHeldRight(*here_, tokens_, 8);
  ExpectNothingHeld();
}

TEST_F(LandingTest, WhatIsHereCanBeFoundBeforeTheRestIs) {
  Begin();
  for (int i = 0; i < 5; ++i) client_.Pump();
  ASSERT_GT(landed_, 1);
  ASSERT_LT(landed_, 8);
  EXPECT_EQ(here_->pool().MatchPrefix(Chain(*here_, tokens_)), landed_);
  const int64_t kept = landed_;
  landing_->Release();
  EXPECT_FALSE(landing_->running());
  landing_.reset();
  PumpAll();
  ExpectHeldRight(*here_, tokens_, kept);
  ExpectNothingHeld();
  EXPECT_FALSE(ended_) << "who lets go hears nothing more";
}

TEST_F(LandingTest, SomebodyElseComputesTheSameBlocksMeanwhile) {
  Begin();
  for (int i = 0; i < 4; ++i) client_.Pump();
  Hold(*here_, tokens_, 8);
  PumpAll();
  EXPECT_TRUE(ended_);
  landing_.reset();
  ExpectHeldRight(*here_, tokens_, 8);
  ExpectNothingHeld();
  EXPECT_EQ(here_->pool().counts().cached, 8) << "one copy";
}

TEST_F(LandingTest, WithoutRoomThereIsNone) {
  const auto others = here_->pool().Allocate(here_->pool().available() - 7).value();
  Begin();
  EXPECT_EQ(landing_, nullptr);
  here_->pool().Release(others);
  Hold(*here_, tokens_, 8);
  Begin();
  EXPECT_EQ(landing_, nullptr) << "everything is here";
  EXPECT_EQ(client_.calls_started(), 0u);
  ExpectNothingHeld();
}

TEST_F(LandingTest, ItsBlocksStayWhileALinkWritesThem) {
  receiver_.late = true;
  Begin();
  PumpAll();
  landing_->Release();
  EXPECT_TRUE(landing_->writing());
  EXPECT_EQ(here_->pool().counts().held, 8);
  for (auto& write : receiver_.writes) write();
  EXPECT_FALSE(landing_->writing());
  landing_.reset();
  PumpAll();
  ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::fetch
