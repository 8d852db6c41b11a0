// The serving end: it pins what it ships, comes after its own worker's needs, and keeps its bounds.
#include "transfer/fetch/peer_server.h"

#include <gmock/gmock.h>

#include "protocol/fleet/fingerprint_wire.h"
#include "tests/unit/transfer/fetch/two_workers.h"
#include "transfer/fetch/blocks_service.h"

namespace baton::fetch {
namespace {

class PeerServerTest : public TwoWorkersTest {
 protected:
  PeerServerTest() : TwoWorkersTest(24, {.max_fetches = 2}) { Hold(*there_, tokens_, 8); }

  struct Caller {
    std::vector<fleet::v1::FetchEvent> events;
    std::optional<absl::Status> finished;
    bool congested = false;
  };
  absl::Status Submit(FetchId id, int64_t blocks) {
    ServedFetch ask;
    ask.hashes = Chain(*there_, tokens_);
    ask.hashes.resize(blocks);
    ask.ticket = {Incarnation(1), TicketId(id), 0, std::vector<Generation>(blocks, Generation(1))};
    Caller& caller = callers_[id];
    ask.send = [&caller](fleet::v1::FetchEvent event) { caller.events.push_back(std::move(event)); };
    ask.finish = [&caller](absl::Status status) { caller.finished = std::move(status); };
    ask.congested = [&caller] { return caller.congested; };
    return server_->Submit(id, std::move(ask));
  }

  const std::vector<TokenId> tokens_ = Tokens(9, 10);
  std::map<FetchId, Caller> callers_;
};

TEST_F(PeerServerTest, BlocksArePinnedUntilTheyHaveLeft) {
  ASSERT_TRUE(Submit(1, 8).ok());
  EXPECT_EQ(there_->pool().counts().held, 8);
  server_->Step();
  // Everything else is given out; what is shipped stays.
  const auto others = there_->pool().Allocate(there_->pool().available()).value();
  while (server_->Step()) {
  }
  EXPECT_TRUE(callers_[1].finished->ok());
  ASSERT_EQ(callers_[1].events.size(), 9u);
  EXPECT_EQ(callers_[1].events[0].found().blocks(), 8u);
  there_->pool().Release(others);
  ExpectHeldRight(*there_, tokens_, 8);
  EXPECT_EQ(there_->pool().counts().held, 0);
}

TEST_F(PeerServerTest, WhatWasEvictedBeforeIsNotFound) {
  there_->pool().Release(there_->pool().Allocate(there_->pool().available() - 3).value());
  const int64_t left = there_->pool().MatchPrefix(Chain(*there_, tokens_));
  ASSERT_LT(left, 8);
  ASSERT_TRUE(Submit(1, 8).ok());
  while (server_->Step()) {
  }
  EXPECT_EQ(callers_[1].events[0].found().blocks(), left);
  EXPECT_TRUE(callers_[1].finished->ok());
}

TEST_F(PeerServerTest, NoMoreAreServedAtOnceThanMay) {
  ASSERT_TRUE(Submit(1, 8).ok());
  ASSERT_TRUE(Submit(2, 8).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Submit(3, 8)));
  server_->Cancel(1);
  EXPECT_TRUE(Submit(3, 8).ok());
  server_->Abort(absl::UnavailableError("leaving"));
  EXPECT_TRUE(absl::IsUnavailable(*callers_[2].finished));
  EXPECT_FALSE(callers_[1].finished.has_value()) << "who cancels hears nothing more";
  EXPECT_EQ(there_->pool().counts().held, 0);
}

TEST_F(PeerServerTest, AStepCopiesOnlySoMuchForAllOfThem) {
  ASSERT_TRUE(Submit(1, 8).ok());
  ASSERT_TRUE(Submit(2, 8).ok());
  size_t before = 2;
  for (int i = 0; i < 16; ++i) {
    server_->Step();
    const size_t now = callers_[1].events.size() + callers_[2].events.size();
    EXPECT_EQ(now, before + 1);
    before = now;
  }
  server_->Step();
  EXPECT_TRUE(callers_[1].finished.has_value() && callers_[2].finished.has_value());
}

TEST_F(PeerServerTest, ACallerThatTakesNothingHoldsUpNobody) {
  ASSERT_TRUE(Submit(1, 8).ok());
  callers_[1].congested = true;
  ASSERT_TRUE(Submit(2, 8).ok());
  while (server_->Step()) {
  }
  EXPECT_EQ(callers_[1].events.size(), 1u);
  EXPECT_TRUE(callers_[2].finished->ok());
  callers_[1].congested = false;
  while (server_->Step()) {
  }
  EXPECT_TRUE(callers_[1].finished->ok());
  EXPECT_EQ(there_->pool().counts().held, 0);
}

TEST_F(PeerServerTest, ItsOwnWorkersNeedsComeFirst) {
  EXPECT_FALSE(server_->MakeRoom());
  ASSERT_TRUE(Submit(1, 8).ok());
  EXPECT_FALSE(there_->pool().Allocate(20).ok());
  EXPECT_TRUE(server_->MakeRoom());
  EXPECT_TRUE(absl::IsResourceExhausted(*callers_[1].finished));
  const auto blocks = there_->pool().Allocate(20);
  ASSERT_TRUE(blocks.ok());
  there_->pool().Release(*blocks);
}

TEST_F(PeerServerTest, RequestsAreChecked) {
  fleet::v1::FetchRequest request;
  *request.mutable_fingerprint() = protocol::ToProto(there_->fingerprint());
  EXPECT_TRUE(absl::IsInvalidArgument(ParseRequest(request, *there_).status())) << "no hashes";
  request.set_hashes(std::string(40, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseRequest(request, *there_).status())) << "half a hash";
  request.set_hashes(std::string(32, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseRequest(request, *there_).status())) << "a ticket for nothing";
  request.mutable_ticket()->add_generations(1);
  request.mutable_ticket()->add_generations(1);
  EXPECT_TRUE(ParseRequest(request, *there_).ok());
  request.mutable_ticket()->set_first_block(1);
  EXPECT_TRUE(absl::IsInvalidArgument(ParseRequest(request, *there_).status()));
  request.mutable_ticket()->set_first_block(0);
  request.set_hashes(std::string(16 * 100'000, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseRequest(request, *there_).status())) << "beyond any context";
  request.mutable_fingerprint()->set_weights("others");
  const absl::Status differs = ParseRequest(request, *there_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(differs));
  EXPECT_THAT(differs.message(), ::testing::HasSubstr("weights"));
}

}  // namespace
}  // namespace baton::fetch
