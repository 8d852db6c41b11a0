#include "router/dispatch/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status.h"
#include "tests/unit/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

TEST_F(DispatcherTest, PlacesAtOnceWhenThereIsRoom) {
  Up(0);
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  ASSERT_EQ(results_[1].size(), 1u);
  ASSERT_TRUE(results_[1][0].ok());
  EXPECT_EQ(results_[1][0]->decode->identity().address, "d0:1");
}

TEST_F(DispatcherTest, WaitsForARequestToEnd) {
  Up(0);
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(2)).ok());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(3)).ok());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(4)).ok());
  EXPECT_EQ(order_, (std::vector<int>{1, 2}));
  results_[2][0]->booking.Release();
  EXPECT_EQ(order_, (std::vector<int>{1, 2, 3}));
  Up(1);
  EXPECT_EQ(order_, (std::vector<int>{1, 2, 3, 4})) << "a worker that comes up is used";
}

TEST_F(DispatcherTest, TellsThoseThatWaitHowTheyStand) {
  Up(0);
  std::map<int, std::vector<int64_t>> told;
  const auto submit = [&](int name) {
    auto request = MakeRequest(name);
    if (name != 3) {
      request->waits = [&told, name](int choice, const Waiting& waiting) {
        EXPECT_EQ(choice, 0);
        told[name].push_back(waiting.ahead);
      };
    }
    ASSERT_TRUE(dispatcher_.Submit(request).ok());
  };
  for (int name = 1; name <= 5; ++name) submit(name);
  dispatcher_.Tick();
  dispatcher_.Tick();
  EXPECT_EQ(told, (std::map<int, std::vector<int64_t>>{{4, {1}}, {5, {2}}}))
      << "those that want to know, once";
  results_[1][0]->booking.Release();
  clock_.Advance(Dispatcher::kTell);
  dispatcher_.Tick();
  EXPECT_EQ(told, (std::map<int, std::vector<int64_t>>{{4, {1, 0}}, {5, {2, 1}}}));
  for (int name : {2, 3, 4, 5}) results_[name][0]->booking.Release();
  clock_.Advance(Dispatcher::kTell);
  dispatcher_.Tick();
  EXPECT_EQ(told[5].size(), 2u) << "none waits";
}

TEST_F(DispatcherTest, AFullQueueRefusesWithADelay) {
  Up(0);
  for (int name = 0; name < 6; ++name) ASSERT_TRUE(dispatcher_.Submit(MakeRequest(name)).ok());
  const auto refused = dispatcher_.Submit(MakeRequest(6));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  const auto delay = rpc::RetryDelay(refused.status());
  ASSERT_TRUE(delay.has_value());
  EXPECT_GE(*delay, absl::Milliseconds(100));
}

TEST_F(DispatcherTest, AFullQueueMakesRoomForATenantWithLess) {
  Up(0);
  for (int name = 0; name < 6; ++name) ASSERT_TRUE(dispatcher_.Submit(MakeRequest(name, 1, 1000)).ok());
  dispatcher_.SetTenant(admission::TenantId(7), "late", {});
  auto late = MakeRequest(6, 1, 1000);
  late->tenant = admission::TenantId(7);
  ASSERT_TRUE(dispatcher_.Submit(late).ok());
  EXPECT_TRUE(results_[6].empty()) << "it waits";
  ASSERT_EQ(results_[5].size(), 1u) << "the newest of the other tenant went";
  EXPECT_TRUE(absl::IsResourceExhausted(results_[5][0].status()));
  EXPECT_TRUE(rpc::RetryDelay(results_[5][0].status()).has_value());
  for (int ended : {0, 1}) results_[ended][0]->booking.Release();
  EXPECT_EQ(std::count(order_.begin(), order_.end(), 6), 1)
      << "a round each, and two of the others are still waiting";
  EXPECT_TRUE(results_[4].empty());
}

TEST_F(DispatcherTest, SettlingLetsATenantsNextRequestGo) {
  Up(0);
  dispatcher_.SetTenant(admission::TenantId(7), "one", {.concurrency = 1});
  std::vector<std::vector<admission::EntryId>> entries;
  for (int name = 0; name < 2; ++name) {
    auto request = MakeRequest(name);
    request->tenant = admission::TenantId(7);
    auto submitted = dispatcher_.Submit(request);
    ASSERT_TRUE(submitted.ok());
    entries.push_back(*submitted);
  }
  EXPECT_EQ(order_, (std::vector<int>{0}));
  results_[0][0]->booking.Release();
  EXPECT_EQ(order_, (std::vector<int>{0})) << "the request has not ended";
  dispatcher_.Settle(entries[0][0], {.requests = 1, .prompt_tokens = 10, .output_tokens = 1});
  EXPECT_EQ(order_, (std::vector<int>{0, 1}));
  EXPECT_NE(metrics_.Text().find("baton_router_tenant_prompt_tokens_total{tenant=\"one\"} 10"),
            std::string::npos);
}

TEST_F(DispatcherTest, AllChoicesOrNone) {
  Up(0);
  for (int name = 0; name < 3; ++name) ASSERT_TRUE(dispatcher_.Submit(MakeRequest(name)).ok());
  EXPECT_FALSE(dispatcher_.Submit(MakeRequest(3, 4)).ok());
  EXPECT_TRUE(results_[3].empty());
}

TEST_F(DispatcherTest, WaitsForWorkersThatHaveNotAnsweredYetButNotLong) {
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  EXPECT_TRUE(results_[1].empty());
  clock_.Advance(absl::Seconds(3));
  dispatcher_.Tick();
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(results_[1][0].status()));
}

TEST_F(DispatcherTest, SaysAtOnceThatNobodyIsUp) {
  fleet_.OnDown(0, absl::UnavailableError("connection refused"));
  fleet_.OnDown(1, absl::UnavailableError("connection refused"));
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_THAT(std::string(results_[1][0].status().message()), HasSubstr("no decode worker is up"));
  EXPECT_EQ(results_[1][0].status().message().find("d0:1"), std::string::npos) << "clients may be strangers";
  EXPECT_THAT(std::string(fleet_.NoDecodeWorker().message()), HasSubstr("d0:1 (connection refused)"));
}

TEST_F(DispatcherTest, AvoidsWorkersThatFailedTheRequest) {
  Up(0);
  Up(1);
  const auto request = MakeRequest(1);
  const auto ids = dispatcher_.Submit(request);
  ASSERT_TRUE(ids.ok());
  const Incarnation first = results_[1][0]->decode->identity().incarnation;
  results_[1][0]->booking.Release();
  dispatcher_.Requeue((*ids)[0], request, 0, {first});
  ASSERT_EQ(results_[1].size(), 2u);
  const Incarnation second = results_[1][1]->decode->identity().incarnation;
  EXPECT_NE(first, second);
  results_[1][1]->booking.Release();
  dispatcher_.Requeue((*ids)[0], request, 0, {first, second});
  ASSERT_EQ(results_[1].size(), 3u);
  EXPECT_TRUE(results_[1][2].ok()) << "where all have failed it, one is asked again";
}

TEST_F(DispatcherTest, ARequestWaitsWhileTheConnectionsToAllWorkersAreBroken) {
  Up(0);
  Up(1);
  fleet_.OnBroken(0);
  const auto first = dispatcher_.Submit(MakeRequest(1));
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_EQ(results_[1][0]->decode->identity().id, "d1") << "the one that is heard";
  fleet_.OnBroken(1);
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(2)).ok());
  dispatcher_.Requeue((*first)[0], MakeRequest(1), 0, {Incarnation(2)}, /*begun=*/true);
  clock_.Advance(absl::Seconds(1));
  dispatcher_.Tick();
  EXPECT_EQ(results_[2].size(), 0u);
  EXPECT_EQ(results_[1].size(), 1u) << "an answer that goes on waits too";
  Up(0);
  ASSERT_EQ(results_[1].size(), 2u);
  EXPECT_EQ(results_[1][1]->decode->identity().id, "d0");
  ASSERT_EQ(results_[2].size(), 1u);
  EXPECT_EQ(results_[2][0]->decode->identity().id, "d0");
}

TEST_F(DispatcherTest, ARequestThatWaitsForBrokenWorkersEndsWhenAllStayDown) {
  Up(0);
  fleet_.OnDown(1, absl::UnavailableError("connection refused"));
  fleet_.OnBroken(0);
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  EXPECT_EQ(results_[1].size(), 0u);
  fleet_.OnDown(0, absl::UnavailableError("it does not answer the watch"));
  clock_.Advance(absl::Seconds(60));
  dispatcher_.Tick();
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_THAT(std::string(results_[1][0].status().message()), HasSubstr("no decode worker is up"));
}

TEST_F(DispatcherTest, APromptThatNoWorkerCanHoldIsRefusedAtOnce) {
  Up(0, 10);
  Up(1, 20);
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1, 1, 16 * 15)).ok());
  ASSERT_TRUE(results_[1][0].ok());
  EXPECT_EQ(results_[1][0]->decode->identity().address, "d1:1") << "the small one can't";
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(2, 1, 16 * 20)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(results_[2][0].status()));
  EXPECT_THAT(std::string(results_[2][0].status().message()),
              HasSubstr("take 21 KV blocks, and the largest decode worker has 20"));
}

TEST_F(DispatcherTest, AnAnswerWithoutMaxTokensGoesWhereItHasMostRoom) {
  Up(0, 10);
  Up(1, 20);
  const auto submit = [&](int name, int64_t prompt, int64_t max_tokens) {
    auto request = MakeRequest(name, 1, prompt);
    request->max_tokens = max_tokens;
    request->open_ended = true;
    ASSERT_TRUE(dispatcher_.Submit(std::move(request)).ok());
  };
  submit(1, 16, 16 * 1000);
  ASSERT_TRUE(results_[1][0].ok()) << results_[1][0].status();
  EXPECT_EQ(results_[1][0]->decode->identity().address, "d1:1");
  submit(2, 16, 16 * 9);
  ASSERT_TRUE(results_[2][0].ok());
  EXPECT_EQ(results_[2][0]->decode->identity().address, "d0:1") << "the small one holds that, and is free";
  submit(3, 16 * 20 - 1, 16 * 1000);
  ASSERT_TRUE(results_[3][0].ok()) << "one token has room";
  submit(4, 16 * 20, 16 * 1000);
  EXPECT_TRUE(absl::IsFailedPrecondition(results_[4][0].status()));
  EXPECT_THAT(std::string(results_[4][0].status().message()),
              HasSubstr("320 tokens and an answer take 21 KV blocks, and the largest decode worker has 20"));
}

TEST_F(DispatcherTest, WhatIsWithdrawnIsNotPlaced) {
  Up(0);
  dispatcher_.Submit(MakeRequest(1)).IgnoreError();
  dispatcher_.Submit(MakeRequest(2)).IgnoreError();
  const auto ids = dispatcher_.Submit(MakeRequest(3));
  ASSERT_TRUE(ids.ok());
  dispatcher_.Withdraw((*ids)[0]);
  dispatcher_.Withdraw((*ids)[0]);
  results_[1][0]->booking.Release();
  EXPECT_TRUE(results_[3].empty());
}

TEST_F(DispatcherTest, ARefusingWorkerIsAskedByOneRequestAtATime) {
  Up(0);
  std::vector<std::shared_ptr<DispatchRequest>> requests = {MakeRequest(0), MakeRequest(1)};
  const auto ids = dispatcher_.Submit(requests[0]);
  ASSERT_TRUE(ids.ok());
  ASSERT_TRUE(dispatcher_.Submit(requests[1]).ok());
  // The first is refused and waits again, at the head.
  results_[0][0]->booking.Refused(clock_.Now());
  dispatcher_.Requeue((*ids)[0], requests[0], 0, {});
  EXPECT_EQ(results_[0].size(), 1u);
  clock_.Advance(fleet::CircuitBreaker::kPatience);
  dispatcher_.Tick();
  EXPECT_EQ(results_[0].size(), 2u) << "the trial";
  dispatcher_.Submit(MakeRequest(2)).IgnoreError();
  EXPECT_TRUE(results_[2].empty()) << "others wait for its answer";
  results_[1].clear();  // makes room under the concurrency limit; the trial is still out
  EXPECT_TRUE(results_[2].empty());
  results_[0][1]->booking.Accepted();
  EXPECT_EQ(results_[2].size(), 1u);
}

TEST_F(DispatcherTest, APlacementIsBelievedAtOnceAndLearntFromAtItsEnd) {
  index::PrefixIndex index({});
  fleet::Fleet fleet({.router_id = "me", .endpoints = {{"d0:1", fleet::Role::kDecode}}, .vocabulary = 0},
                     probe_, &index);
  Dispatcher dispatcher(Options(), fleet, *placement::MakePolicy("least_loaded", 1), clock_, probe_, &index);
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(1);
  baton::fleet::v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
  info->set_worker_id("d0");
  info->set_role(baton::fleet::v1::ROLE_DECODE);
  info->set_incarnation(1);
  ASSERT_TRUE(fleet.OnEvent(0, event).ok());

  const auto request = MakeRequest(1, 2);
  request->debug = true;
  request->chain = kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")),
                                 std::vector<TokenId>(600 * kBlockTokens, TokenId(7)));
  ASSERT_TRUE(dispatcher.Submit(request).ok());
  ASSERT_EQ(results_[1].size(), 2u);
  EXPECT_EQ(index.stats().speculative, 600)
      << "what came first is told at once, the rest before Submit returns";
  v1::Finished finished;
  results_[1][1]->Finished(&finished, {});
  EXPECT_EQ(finished.placement().policy(), "least_loaded");
  EXPECT_EQ(finished.placement().reason(), "load");
  EXPECT_EQ(finished.placement().prompt_blocks(), 600u);
  EXPECT_GE(finished.placement().decode_matched_blocks(), 256u)
      << "the second choice found the first one's tail";
  // Nothing came of it.
  clock_.Advance(absl::Seconds(60));
  while (index.Maintain(clock_.Now())) {
  }
  EXPECT_EQ(index.stats().pairs, 0);
  results_.clear();
}

// The next turn of a conversation whose worker drains goes elsewhere, and fetches from there what it has said
// that it holds.
TEST_F(DispatcherTest, NamesAWorkerThatDrainsAsThePeer) {
  index::PrefixIndex index({});
  fleet::Fleet fleet({.router_id = "me",
                      .endpoints = {{"d0:1", fleet::Role::kDecode}, {"d1:1", fleet::Role::kDecode}},
                      .vocabulary = 0},
                     probe_, &index);
  Dispatcher dispatcher(Options(), fleet, *placement::MakePolicy("prefix_affinity", 1), clock_, probe_,
                        &index);
  const auto chain = kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")),
                                   std::vector<TokenId>(200 * kBlockTokens, TokenId(7)));
  for (const int endpoint : {0, 1}) {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(1);
    baton::fleet::v1::Snapshot& snapshot = *event.mutable_snapshot();
    snapshot.mutable_info()->set_worker_id(endpoint == 0 ? "d0" : "d1");
    snapshot.mutable_info()->set_role(baton::fleet::v1::ROLE_DECODE);
    snapshot.mutable_info()->set_incarnation(endpoint + 1);
    snapshot.mutable_info()->set_peer_fetch(true);
    snapshot.mutable_load()->set_total_blocks(10'000);
    snapshot.mutable_load()->set_free_blocks(9'000);
    if (endpoint == 0) {
      for (const kv::BlockHash& hash : chain) snapshot.mutable_stored()->append(hash.bytes());
    }
    ASSERT_TRUE(fleet.OnEvent(endpoint, event).ok());
  }
  baton::fleet::v1::WatchEvent drains;
  drains.set_sequence(2);
  drains.mutable_delta()->set_draining(true);
  ASSERT_TRUE(fleet.OnEvent(0, drains).ok());
  ASSERT_EQ(fleet.view()->leaving.size(), 1u);
  const auto request = MakeRequest(1, 1, 201 * kBlockTokens);
  request->chain = chain;
  ASSERT_TRUE(dispatcher.Submit(request).ok());
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_EQ(results_[1][0]->decode->identity().id, "d1");
  ASSERT_NE(results_[1][0]->fetch_from, nullptr);
  EXPECT_EQ(results_[1][0]->fetch_from->identity().id, "d0");
  EXPECT_EQ(results_[1][0]->selection.fetch_blocks, 200);
  results_.clear();
  // It has gone.
  fleet.OnDown(0, absl::UnavailableError("gone"));
  EXPECT_TRUE(fleet.view()->leaving.empty());
  ASSERT_TRUE(dispatcher.Submit(request).ok());
  EXPECT_EQ(results_[1][0]->fetch_from, nullptr);
  results_.clear();
}

// A busy decode worker says that it holds the conversation, and the next turn is computed elsewhere: from
// what it has said, and from nothing that is only a speculative entry, blocks are to be fetched.
TEST_F(DispatcherTest, NamesAPeerForWhatItHasSaidThatItHolds) {
  for (const bool takes_part : {true, false}) {
    SCOPED_TRACE(takes_part);
    index::PrefixIndex index({});
    fleet::Fleet fleet({.router_id = "me",
                        .endpoints = {{"d0:1", fleet::Role::kDecode}, {"p0:1", fleet::Role::kPrefill}},
                        .vocabulary = 0},
                       probe_, &index);
    Dispatcher dispatcher(Options(), fleet, *placement::MakePolicy("prefix_affinity", 1), clock_, probe_,
                          &index);
    const auto chain = kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")),
                                     std::vector<TokenId>(250 * kBlockTokens, TokenId(7)));
    for (const int endpoint : {0, 1}) {
      baton::fleet::v1::WatchEvent event;
      event.set_sequence(1);
      baton::fleet::v1::Snapshot& snapshot = *event.mutable_snapshot();
      snapshot.mutable_info()->set_worker_id(endpoint == 0 ? "d0" : "p0");
      snapshot.mutable_info()->set_role(endpoint == 0 ? baton::fleet::v1::ROLE_DECODE
                                                      : baton::fleet::v1::ROLE_PREFILL);
      snapshot.mutable_info()->set_incarnation(endpoint + 1);
      snapshot.mutable_info()->set_peer_fetch(takes_part);
      snapshot.mutable_load()->set_total_blocks(10'000);
      snapshot.mutable_load()->set_free_blocks(9'000);
      if (endpoint == 0) {
        snapshot.mutable_load()->set_running(60);
        for (int i = 0; i < 200; ++i) snapshot.mutable_stored()->append(chain[i].bytes());
      }
      ASSERT_TRUE(fleet.OnEvent(endpoint, event).ok());
    }
    index.Speculate(fleet.view()->decode[0]->slot(), std::span(chain).subspan(200),
                    clock_.Now() + absl::Seconds(10));
    const auto request = MakeRequest(1, 1, 251 * kBlockTokens);
    request->debug = true;
    request->chain = chain;
    request->last_worker = Incarnation(takes_part ? 1 : 9);
    ASSERT_TRUE(dispatcher.Submit(request).ok());
    ASSERT_EQ(results_[1].size(), 1u);
    const Placement& first = *results_[1][0];
    EXPECT_EQ(first.last_worker.here, takes_part) << "another incarnation is another worker";
    EXPECT_EQ(first.last_worker.blocks, takes_part ? 250 : 0);
    ASSERT_EQ(first.prefill.size(), 1u);
    v1::Finished finished;
    if (!takes_part) {
      EXPECT_EQ(first.fetch_from, nullptr);
    } else {
      ASSERT_NE(first.fetch_from, nullptr);
      EXPECT_EQ(first.fetch_from->identity().id, "d0");
      EXPECT_EQ(first.selection.fetch_blocks, 200) << "the last 50 are expected there, and not said";
      finished.mutable_relay()->set_prefill_worker("p0");
      finished.mutable_relay()->set_fetched_tokens(3200);
      finished.mutable_relay()->set_fetch_seconds(1);
    }
    first.Finished(&finished, {});
    EXPECT_EQ(finished.placement().fetch_from(), takes_part ? "d0" : "");
    EXPECT_EQ(finished.placement().fetch_blocks(), takes_part ? 200u : 0u);
    EXPECT_EQ(finished.placement().reason() == "fetch", takes_part);
    EXPECT_EQ(finished.placement().no_fetch(), takes_part ? "" : "cannot");
    EXPECT_EQ(metrics_.Text().find("baton_router_fetches_not_planned_total{why=\"cannot\"} 1\n") !=
                  std::string::npos,
              !takes_part);
    results_.clear();
  }
}

}  // namespace
}  // namespace baton::router
