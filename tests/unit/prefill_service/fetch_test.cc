// The prefill scheduler with a peer to fetch from: what is fetched isn't computed, nobody is held up by a
// fetch, and a slow or broken one costs a computation.
#include <gtest/gtest.h>

#include <map>

#include "prefill_service/scheduler.h"
#include "tests/unit/transfer/fetch/two_workers.h"

namespace baton::prefill_service {
namespace {

struct Caller {
  std::vector<fleet::v1::PrefillEvent> events;
  std::optional<absl::Status> finished;

  const fleet::v1::PrefillDone* done() const {
    for (const auto& event : events) {
      if (event.has_done()) return &event.done();
    }
    return nullptr;
  }
};

class FetchingSchedulerTest : public fetch::TwoWorkersTest {
 protected:
  explicit FetchingSchedulerTest(fetch::FetcherOptions options = {.always = true})
      : TwoWorkersTest(/*blocks=*/40) {
    MakeFetcher(options);
    const SchedulerOptions small = {.chunk_tokens = 16, .token_budget = 16};
    scheduler_ =
        std::make_unique<Scheduler>(small, *here_, sender_, clock_, prefill_probe_,
                                    fetch::PeerFetch{.fetcher = fetcher_.get(), .server = &here_server_});
    other_ = std::make_unique<Scheduler>(small, *there_, sender_, clock_, other_probe_);
  }

  absl::Status Submit(Scheduler& scheduler, JobId id, const std::vector<TokenId>& tokens,
                      int64_t fetch_blocks = 0) {
    Job job;
    job.tokens = tokens;
    job.root = here_->RootFor(kv::TenantSalt(kSalt));
    job.ticket = {Incarnation(1), TicketId(id), 0,
                  std::vector<Generation>(BlocksFor(std::ssize(tokens)), Generation(1))};
    if (fetch_blocks > 0) job.peer = Peer(fetch_blocks);
    Caller& peer = peers_[id];
    job.send = [&peer](fleet::v1::PrefillEvent event) { peer.events.push_back(std::move(event)); };
    job.finish = [this, &peer, id](absl::Status status) {
      peer.finished = std::move(status);
      order_.push_back(id);
    };
    job.congested = [] { return false; };
    return scheduler.Submit(id, std::move(job));
  }
  // The other worker computes the prompt, and holds its blocks.
  void ComputeThere(JobId id, const std::vector<TokenId>& tokens) {
    ASSERT_TRUE(Submit(*other_, id, tokens).ok());
    while (other_->Step()) {
    }
    ASSERT_NE(peers_[id].done(), nullptr);
  }
  void Run(int steps = 1000) {
    for (int i = 0; i < steps; ++i) {
      const bool pumped = client_.Pump();
      if (!scheduler_->Step() && !pumped) break;
    }
  }
  std::vector<TokenId> Prefix(int64_t tokens) const { return {tokens_.begin(), tokens_.begin() + tokens}; }

  const std::vector<TokenId> tokens_ = Tokens(21, 14);
  telemetry::Metrics prefill_metrics_, other_metrics_, here_holder_metrics_;
  Probe prefill_probe_{prefill_metrics_, "host"}, other_probe_{other_metrics_, "host"};
  fetch::Probe here_server_probe_{here_holder_metrics_, "host"};
  fetch::PeerServer here_server_{{}, *here_, sender_, here_server_probe_};
  std::map<JobId, Caller> peers_;
  std::vector<JobId> order_;
  std::unique_ptr<Scheduler> scheduler_, other_;
};

TEST_F(FetchingSchedulerTest, OnlyTheRestIsComputedAndTheLogitsAreTheSame) {
  ComputeThere(1, Prefix(160));
  ComputeThere(2, Prefix(200));
  ASSERT_TRUE(Submit(*scheduler_, 3, Prefix(200), 10).ok());
  Run();
  ASSERT_NE(peers_[3].done(), nullptr);
  const fleet::v1::PrefillDone& done = *peers_[3].done();
  EXPECT_EQ(done.logits(), peers_[2].done()->logits()) << "to the last bit";
  EXPECT_EQ(done.fetched_tokens(), 160u);
  EXPECT_EQ(done.fetched_from(), "there");
  EXPECT_EQ(done.cached_tokens(), 160u);
  EXPECT_EQ(done.computed_tokens(), 40u);
  // All of it is shipped, as if it had been computed here.
  int64_t shipped = 0;
  for (const auto& event : peers_[3].events) {
    shipped += event.chunk().generations_size() * static_cast<int64_t>(event.chunk().layers());
  }
  EXPECT_EQ(shipped, BlocksFor(200) * here_->store().layout().layers);
  EXPECT_TRUE(peers_[3].finished->ok());
  ExpectNothingHeld();
}

TEST_F(FetchingSchedulerTest, OthersGoFirstWhileItWaits) {
  ComputeThere(1, Prefix(160));
  client_.Hang(true);
  ASSERT_TRUE(Submit(*scheduler_, 2, Prefix(200), 10).ok());
  ASSERT_TRUE(Submit(*scheduler_, 3, Tokens(22, 6)).ok());
  Run();
  EXPECT_NE(peers_[3].done(), nullptr) << "the engine is not idle";
  EXPECT_EQ(peers_[2].done(), nullptr);
  EXPECT_EQ(scheduler_->queued(), 1u);
  client_.Hang(false);
  Run();
  ASSERT_NE(peers_[2].done(), nullptr);
  EXPECT_EQ(peers_[2].done()->fetched_tokens(), 160u);
  ExpectNothingHeld();
}

TEST_F(FetchingSchedulerTest, WhatCameOfABrokenFetchIsKeptAndTheRestIsComputed) {
  ComputeThere(1, Prefix(200));
  client_.SetFault([](int index, fleet::v1::FetchEvent&, bool&) {
    return index == 5 ? absl::UnavailableError("connection reset") : absl::OkStatus();
  });
  ASSERT_TRUE(Submit(*scheduler_, 2, Prefix(200), 12).ok());
  Run();
  ASSERT_NE(peers_[2].done(), nullptr);
  EXPECT_EQ(peers_[2].done()->logits(), peers_[1].done()->logits());
  EXPECT_EQ(peers_[2].done()->fetched_tokens(), 64u);
  EXPECT_EQ(peers_[2].done()->computed_tokens(), 200u - 64u);
  ExpectNothingHeld();
}

TEST_F(FetchingSchedulerTest, AFetchWhoseTimeIsOverIsGivenUp) {
  ComputeThere(1, Prefix(200));
  client_.Hang(true);
  ASSERT_TRUE(Submit(*scheduler_, 2, Prefix(200), 12).ok());
  Run();
  EXPECT_EQ(peers_[2].done(), nullptr);
  client_.PassDeadlines();
  client_.Hang(false);
  Run();
  ASSERT_NE(peers_[2].done(), nullptr);
  EXPECT_EQ(peers_[2].done()->logits(), peers_[1].done()->logits());
  EXPECT_EQ(peers_[2].done()->fetched_tokens(), 0u);
  ExpectNothingHeld();
}

TEST_F(FetchingSchedulerTest, CancelAndAbortLetGoOfTheFetch) {
  ComputeThere(1, Prefix(160));
  client_.Hang(true);
  ASSERT_TRUE(Submit(*scheduler_, 2, Prefix(200), 10).ok());
  EXPECT_EQ(here_->pool().counts().held, 10);
  scheduler_->Cancel(2);
  Run();
  ExpectNothingHeld();
  ASSERT_TRUE(Submit(*scheduler_, 3, Prefix(200), 10).ok());
  scheduler_->Abort(absl::UnavailableError("leaving"));
  EXPECT_TRUE(absl::IsUnavailable(*peers_[3].finished));
  Run();
  ExpectNothingHeld();
}

// Blocks on their way never keep those from running whose turn it is, and nor do blocks that peers fetch.
TEST_F(FetchingSchedulerTest, WhoeverRunsNowHasTheRoom) {
  ComputeThere(1, Prefix(160));
  Hold(*here_, Tokens(23, 15), 15);
  fetch::ServedFetch ask;
  ask.hashes = Chain(*here_, Tokens(23, 15));
  ask.ticket = {Incarnation(9), TicketId(1), 0, std::vector<Generation>(15, Generation(1))};
  std::optional<absl::Status> served;
  ask.send = [](fleet::v1::FetchEvent) {};
  ask.finish = [&](absl::Status status) { served = std::move(status); };
  ask.congested = [] { return true; };
  ASSERT_TRUE(here_server_.Submit(1, std::move(ask)).ok());
  client_.Hang(true);
  ASSERT_TRUE(Submit(*scheduler_, 2, Prefix(200), 10).ok());
  EXPECT_EQ(here_->pool().counts().held, 25);
  ASSERT_TRUE(Submit(*scheduler_, 3, Tokens(24, 15)).ok());  // one block more than is left
  Run();
  ASSERT_NE(peers_[3].done(), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(*served));
  Run();
  ASSERT_NE(peers_[2].done(), nullptr) << "computed, without its fetch";
  EXPECT_EQ(peers_[2].done()->fetched_tokens(), 0u);
  client_.Hang(false);
  Run();
  ExpectNothingHeld();
}

class PredictingSchedulerTest : public FetchingSchedulerTest {
 protected:
  PredictingSchedulerTest() : FetchingSchedulerTest(fetch::FetcherOptions{}) {}
};

TEST_F(PredictingSchedulerTest, ALittleIsComputedRatherThanFetched) {
  ComputeThere(1, Prefix(32));
  ASSERT_TRUE(Submit(*scheduler_, 2, Prefix(40), 2).ok());
  Run();
  EXPECT_EQ(client_.calls_started(), 0u);
  ASSERT_NE(peers_[2].done(), nullptr);
  EXPECT_EQ(peers_[2].done()->computed_tokens(), 40u);
}

TEST_F(PredictingSchedulerTest, AFetchThatLagsIsGivenUpWhenItsTurnHasCome) {
  ComputeThere(1, Prefix(200));
  client_.Hang(true);
  ASSERT_TRUE(Submit(*scheduler_, 2, Prefix(200), 12).ok());
  ASSERT_EQ(client_.calls_started(), 1u);
  scheduler_->Step();
  EXPECT_EQ(scheduler_->computing(), 0u) << "it waits";
  clock_.Advance(absl::Seconds(1));
  Run();
  ASSERT_NE(peers_[2].done(), nullptr);
  EXPECT_EQ(peers_[2].done()->logits(), peers_[1].done()->logits());
  ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::prefill_service
