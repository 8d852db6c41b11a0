#include "router/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/check.h"
#include "common/rpc/status.h"
#include "common/telemetry/metrics.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

class DispatcherTest : public ::testing::Test {
 protected:
  static Dispatcher::Options Options() {
    Dispatcher::Options options;
    options.limits = {.entries = 4, .bytes = 1000};
    options.worker_concurrency = 2;
    options.max_wait = absl::Seconds(60);
    options.settle_patience = absl::Seconds(3);
    return options;
  }

  void Up(int seat, uint64_t total_blocks = 1000) {
    v1::WatchEvent event;
    event.set_sequence(1);
    v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
    info->set_worker_id("d" + std::to_string(seat));
    info->set_role(v1::ROLE_DECODE);
    info->set_incarnation(seat + 1);
    event.mutable_snapshot()->mutable_load()->set_total_blocks(total_blocks);
    BATON_CHECK(fleet_.OnEvent(seat, event).ok());
  }

  std::shared_ptr<Dispatcher::Ask> Ask(int name, int choices = 1, int64_t tokens = 10) {
    auto ask = std::make_shared<Dispatcher::Ask>();
    ask->choices = choices;
    ask->request.prompt_tokens = tokens;
    ask->request.max_tokens = 1;
    ask->bytes = 10;
    ask->result = [this, name](int choice, absl::StatusOr<Placement> result) {
      order_.push_back(name);
      results_[name].push_back(std::move(result));
    };
    return ask;
  }

  FakeClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{&metrics_};
  fleet::Fleet fleet_{{.router_id = "me",
                       .seats = {{"d0:1", fleet::Role::kDecode}, {"d1:1", fleet::Role::kDecode}},
                       .vocabulary = 0},
                      &probe_};
  std::map<int, std::vector<absl::StatusOr<Placement>>> results_;
  std::vector<int> order_;
  Dispatcher dispatcher_{Options(), &fleet_, *placement::MakePolicy("least_loaded", 1), &clock_, &probe_};
};

TEST_F(DispatcherTest, PlacesAtOnceWhenThereIsRoom) {
  Up(0);
  ASSERT_TRUE(dispatcher_.Submit(Ask(1)).ok());
  ASSERT_EQ(results_[1].size(), 1u);
  ASSERT_TRUE(results_[1][0].ok());
  EXPECT_EQ(results_[1][0]->decode->identity().address, "d0:1");
}

TEST_F(DispatcherTest, WaitsForARequestToEnd) {
  Up(0);
  ASSERT_TRUE(dispatcher_.Submit(Ask(1)).ok());
  ASSERT_TRUE(dispatcher_.Submit(Ask(2)).ok());
  ASSERT_TRUE(dispatcher_.Submit(Ask(3)).ok());
  ASSERT_TRUE(dispatcher_.Submit(Ask(4)).ok());
  EXPECT_EQ(order_, (std::vector<int>{1, 2}));
  results_[2][0]->booking.Release();
  EXPECT_EQ(order_, (std::vector<int>{1, 2, 3}));
  Up(1);
  EXPECT_EQ(order_, (std::vector<int>{1, 2, 3, 4})) << "a worker that comes up is used";
}

TEST_F(DispatcherTest, AFullQueueRefusesWithADelay) {
  Up(0);
  for (int name = 0; name < 6; ++name) ASSERT_TRUE(dispatcher_.Submit(Ask(name)).ok());
  const auto refused = dispatcher_.Submit(Ask(6));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  const auto delay = rpc::RetryDelay(refused.status());
  ASSERT_TRUE(delay.has_value());
  EXPECT_GE(*delay, absl::Milliseconds(100));
}

TEST_F(DispatcherTest, AFullQueueMakesRoomForATenantWithLess) {
  Up(0);
  for (int name = 0; name < 6; ++name) ASSERT_TRUE(dispatcher_.Submit(Ask(name, 1, 1000)).ok());
  dispatcher_.SetTenant(admission::TenantId(7), "late", {});
  auto late = Ask(6, 1, 1000);
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
    auto ask = Ask(name);
    ask->tenant = admission::TenantId(7);
    auto submitted = dispatcher_.Submit(ask);
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

// Says that everything takes two seconds.
class TwoSeconds final : public placement::Policy {
 public:
  std::string_view name() const override { return "two_seconds"; }
  placement::Choice Choose(const placement::Request&, placement::Workers, placement::Workers) override {
    placement::Choice choice;
    choice.predicted.prefill = 2;
    return choice;
  }
};

TEST_F(DispatcherTest, APredictionRefusesWhatCannotMakeItsDeadline) {
  Dispatcher dispatcher(Options(), &fleet_, std::make_unique<TwoSeconds>(), &clock_, &probe_);
  Up(0);
  const auto submit = [&](int name, absl::Duration deadline) {
    auto ask = Ask(name);
    ask->deadline = clock_.Now() + deadline;
    const absl::Status taken = dispatcher.Submit(ask).status();
    // Whoever needn't wait is judged as it is placed.
    return taken.ok() && !results_[name].empty() ? results_[name][0].status() : taken;
  };
  for (int i = 0; i < admission::Foresight::kOutcomesToTrust; ++i) {
    ASSERT_TRUE(submit(i, absl::Seconds(1)).ok()) << "not trusted yet";
    ASSERT_EQ(results_[i].size(), 1u);
    results_[i][0]->first_token(absl::Seconds(2));
    results_[i][0]->booking.Release();
  }
  ASSERT_TRUE(submit(100, absl::Seconds(1)).ok()) << "nothing runs: tried";
  const absl::Status refused = submit(101, absl::Seconds(1));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("first token is predicted in 2.000 s"));
  EXPECT_TRUE(rpc::RetryDelay(refused).has_value());
  EXPECT_TRUE(submit(102, absl::Seconds(3)).ok());
  EXPECT_TRUE(submit(103, absl::Seconds(3)).ok()) << "waits: the worker takes two";
  EXPECT_TRUE(results_[103].empty());
  clock_.Advance(absl::Seconds(1));
  dispatcher.Tick();
  ASSERT_EQ(results_[103].size(), 1u) << "refused when it became hopeless, not when it was late";
  EXPECT_TRUE(absl::IsResourceExhausted(results_[103][0].status())) << results_[103][0].status();
}

// Says that a request waits for a second per request that runs, and then takes one.
class ASecondEach final : public placement::Policy {
 public:
  std::string_view name() const override { return "a_second_each"; }
  placement::Choice Choose(const placement::Request&, placement::Workers decode,
                           placement::Workers) override {
    placement::Choice choice;
    choice.predicted.prefill = 1;
    choice.predicted.wait = static_cast<double>(decode[0].running);
    return choice;
  }
};

class DefaultDeadlineTest : public DispatcherTest {
 protected:
  DefaultDeadlineTest() { Up(0); }

  static Dispatcher::Options WithDeadline() {
    Dispatcher::Options options = Options();
    options.limits.entries = 100;
    options.worker_concurrency = 100;
    options.default_ttft = absl::Seconds(3);
    return options;
  }
  // Enough answers that came as predicted.
  void Teach() {
    for (int i = 0; i < admission::Foresight::kOutcomesToTrust; ++i) {
      ASSERT_TRUE(dispatcher2_.Submit(Ask(1000 + i)).ok());
      ASSERT_TRUE(results_[1000 + i][0].ok());
      End(1000 + i);
    }
  }
  void End(int name) {
    results_[name][0]->first_token(absl::Seconds(1));
    results_[name][0]->booking.Release();
  }
  std::shared_ptr<Dispatcher::Ask> Now(int name) {
    auto ask = Ask(name);
    ask->request.arrival = clock_.Now();
    return ask;
  }

  Dispatcher dispatcher2_{WithDeadline(), &fleet_, std::make_unique<ASecondEach>(), &clock_, &probe_};
};

TEST_F(DefaultDeadlineTest, RefusesAtOnceWhatWouldComeTooLate) {
  Teach();
  for (int name = 0; name < 6; ++name) ASSERT_TRUE(dispatcher2_.Submit(Now(name)).ok());
  for (int name = 0; name < 3; ++name) EXPECT_TRUE(results_[name][0].ok()) << name;
  for (int name = 3; name < 6; ++name) {
    ASSERT_EQ(results_[name].size(), 1u) << "told at once";
    const absl::Status status = results_[name][0].status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("the first token is predicted in 4.000 s (0.000 s of them in the queue), and without "
                  "a deadline it may take 3.000 s here"));
    EXPECT_EQ(rpc::RetryDelay(status), absl::Seconds(1));
  }
  End(0);
  ASSERT_TRUE(dispatcher2_.Submit(Now(7)).ok());
  EXPECT_TRUE(results_[7][0].ok()) << "there is time again";
}

TEST_F(DefaultDeadlineTest, TheClientsOwnDeadlineCounts) {
  Teach();
  for (int name = 0; name < 5; ++name) {
    auto ask = Now(name);
    ask->deadline = clock_.Now() + absl::Seconds(60);
    ASSERT_TRUE(dispatcher2_.Submit(ask).ok());
    EXPECT_TRUE(results_[name][0].ok()) << name;
  }
}

TEST_F(DefaultDeadlineTest, BeforePredictionsWereSeenToHoldNobodyIsRefusedByThemAndFewAreTried) {
  constexpr int kTried = admission::Foresight::kUntriedPerWorker;
  for (int name = 0; name < kTried + 2; ++name) ASSERT_TRUE(dispatcher2_.Submit(Now(name)).ok());
  for (int name = 0; name < kTried; ++name) {
    ASSERT_EQ(results_[name].size(), 1u) << name;
    EXPECT_TRUE(results_[name][0].ok()) << name;
  }
  EXPECT_TRUE(results_[kTried].empty()) << "waits for the first tokens of others";
  results_[0][0]->booking.FirstToken(clock_.Now());
  results_[0][0]->first_token(absl::Seconds(1));
  ASSERT_EQ(results_[kTried].size(), 1u);
  EXPECT_TRUE(results_[kTried][0].ok());
  clock_.Advance(absl::Seconds(3));
  dispatcher2_.Tick();
  ASSERT_EQ(results_[kTried + 1].size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(results_[kTried + 1][0].status())) << "not for ever";
}

TEST_F(DefaultDeadlineTest, AnAnswerThatGoesOnElsewhereIsNotRefusedForItsFirstToken) {
  Teach();
  std::vector<admission::EntryId> entries;
  auto ask = Now(0);
  for (int name = 0; name < 3; ++name) {
    auto submitted = dispatcher2_.Submit(name == 0 ? ask : Now(name));
    ASSERT_TRUE(submitted.ok());
    entries.push_back(submitted->front());
  }
  clock_.Advance(absl::Seconds(10));
  dispatcher2_.Again(entries[0], ask, 0, {}, /*begun=*/true);
  ASSERT_EQ(results_[0].size(), 2u);
  EXPECT_TRUE(results_[0][1].ok()) << results_[0][1].status();
}

TEST_F(DispatcherTest, AllChoicesOrNone) {
  Up(0);
  for (int name = 0; name < 3; ++name) ASSERT_TRUE(dispatcher_.Submit(Ask(name)).ok());
  EXPECT_FALSE(dispatcher_.Submit(Ask(3, 4)).ok());
  EXPECT_TRUE(results_[3].empty());
}

TEST_F(DispatcherTest, ADeadlineIsAnsweredWhenItComes) {
  Up(0);
  dispatcher_.Submit(Ask(1)).IgnoreError();
  dispatcher_.Submit(Ask(2)).IgnoreError();
  auto late = Ask(3);
  late->deadline = clock_.Now() + absl::Seconds(1);
  ASSERT_TRUE(dispatcher_.Submit(late).ok());
  dispatcher_.Tick();
  EXPECT_TRUE(results_[3].empty());
  clock_.Advance(absl::Seconds(1));
  dispatcher_.Tick();
  ASSERT_EQ(results_[3].size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(results_[3][0].status()));
}

TEST_F(DispatcherTest, NobodyWaitsForever) {
  Up(0);
  for (int name = 1; name <= 3; ++name) dispatcher_.Submit(Ask(name)).IgnoreError();
  clock_.Advance(absl::Seconds(60));
  dispatcher_.Tick();
  ASSERT_EQ(results_[3].size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(results_[3][0].status()));
  EXPECT_TRUE(rpc::RetryDelay(results_[3][0].status()).has_value());
}

TEST_F(DispatcherTest, WaitsForWorkersThatHaveNotAnsweredYetButNotLong) {
  ASSERT_TRUE(dispatcher_.Submit(Ask(1)).ok());
  EXPECT_TRUE(results_[1].empty());
  clock_.Advance(absl::Seconds(3));
  dispatcher_.Tick();
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(results_[1][0].status()));
}

TEST_F(DispatcherTest, SaysAtOnceThatNobodyIsUp) {
  fleet_.OnDown(0, absl::UnavailableError("connection refused"));
  fleet_.OnDown(1, absl::UnavailableError("connection refused"));
  ASSERT_TRUE(dispatcher_.Submit(Ask(1)).ok());
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_THAT(std::string(results_[1][0].status().message()), HasSubstr("d0:1 (connection refused)"));
}

TEST_F(DispatcherTest, AvoidsWorkersThatFailedTheRequest) {
  Up(0);
  Up(1);
  const auto ask = Ask(1);
  const auto ids = dispatcher_.Submit(ask);
  ASSERT_TRUE(ids.ok());
  const Incarnation first = results_[1][0]->decode->identity().incarnation;
  results_[1][0]->booking.Release();
  dispatcher_.Again((*ids)[0], ask, 0, {first});
  ASSERT_EQ(results_[1].size(), 2u);
  const Incarnation second = results_[1][1]->decode->identity().incarnation;
  EXPECT_NE(first, second);
  results_[1][1]->booking.Release();
  dispatcher_.Again((*ids)[0], ask, 0, {first, second});
  ASSERT_EQ(results_[1].size(), 3u);
  EXPECT_TRUE(absl::IsUnavailable(results_[1][2].status()));
}

TEST_F(DispatcherTest, APromptThatNoWorkerCanHoldIsRefusedAtOnce) {
  Up(0, 10);
  Up(1, 20);
  ASSERT_TRUE(dispatcher_.Submit(Ask(1, 1, 16 * 15)).ok());
  ASSERT_TRUE(results_[1][0].ok());
  EXPECT_EQ(results_[1][0]->decode->identity().address, "d1:1") << "the small one can't";
  ASSERT_TRUE(dispatcher_.Submit(Ask(2, 1, 16 * 20)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(results_[2][0].status()));
  EXPECT_THAT(std::string(results_[2][0].status().message()),
              HasSubstr("take 21 KV blocks, and the largest decode worker has 20"));
}

TEST_F(DispatcherTest, WhatIsWithdrawnIsNotPlaced) {
  Up(0);
  dispatcher_.Submit(Ask(1)).IgnoreError();
  dispatcher_.Submit(Ask(2)).IgnoreError();
  const auto ids = dispatcher_.Submit(Ask(3));
  ASSERT_TRUE(ids.ok());
  dispatcher_.Withdraw((*ids)[0]);
  dispatcher_.Withdraw((*ids)[0]);
  results_[1][0]->booking.Release();
  EXPECT_TRUE(results_[3].empty());
}

TEST_F(DispatcherTest, ARefusingWorkerIsAskedByOneRequestAtATime) {
  Up(0);
  std::vector<std::shared_ptr<Dispatcher::Ask>> asks = {Ask(0), Ask(1)};
  const auto ids = dispatcher_.Submit(asks[0]);
  ASSERT_TRUE(ids.ok());
  ASSERT_TRUE(dispatcher_.Submit(asks[1]).ok());
  // The first is refused and waits again, at the head.
  results_[0][0]->booking.Refused(clock_.Now());
  dispatcher_.Again((*ids)[0], asks[0], 0, {});
  EXPECT_EQ(results_[0].size(), 1u);
  clock_.Advance(fleet::Worker::kGatePatience);
  dispatcher_.Tick();
  EXPECT_EQ(results_[0].size(), 2u) << "the trial";
  dispatcher_.Submit(Ask(2)).IgnoreError();
  EXPECT_TRUE(results_[2].empty()) << "others wait for its answer";
  results_[1].clear();  // makes room under the concurrency limit; the trial is still out
  EXPECT_TRUE(results_[2].empty());
  results_[0][1]->booking.Accepted();
  EXPECT_EQ(results_[2].size(), 1u);
}

TEST_F(DispatcherTest, APlacementIsBelievedAtOnceAndLearntFromAtItsEnd) {
  index::PrefixIndex index({});
  fleet::Fleet fleet({.router_id = "me", .seats = {{"d0:1", fleet::Role::kDecode}}, .vocabulary = 0}, &probe_,
                     &index);
  Dispatcher dispatcher(Options(), &fleet, *placement::MakePolicy("least_loaded", 1), &clock_, &probe_,
                        &index);
  v1::WatchEvent event;
  event.set_sequence(1);
  v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
  info->set_worker_id("d0");
  info->set_role(v1::ROLE_DECODE);
  info->set_incarnation(1);
  ASSERT_TRUE(fleet.OnEvent(0, event).ok());

  const auto ask = Ask(1, 2);
  ask->debug = true;
  ask->chain = kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")),
                             std::vector<TokenId>(600 * kBlockTokens, TokenId(7)));
  ASSERT_TRUE(dispatcher.Submit(ask).ok());
  ASSERT_EQ(results_[1].size(), 2u);
  EXPECT_EQ(index.stats().speculative, 600)
      << "what came first is told at once, the rest before Submit returns";
  v1::Finished finished;
  results_[1][1]->learn(&finished);
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

// A busy decode worker says that it holds the conversation, and the next turn is computed elsewhere: from
// what it has said, and from nothing that is only believed of it, blocks are to be fetched.
TEST_F(DispatcherTest, NamesAPeerForWhatItHasSaidThatItHolds) {
  for (const bool takes_part : {true, false}) {
    SCOPED_TRACE(takes_part);
    index::PrefixIndex index({});
    fleet::Fleet fleet({.router_id = "me",
                        .seats = {{"d0:1", fleet::Role::kDecode}, {"p0:1", fleet::Role::kPrefill}},
                        .vocabulary = 0},
                       &probe_, &index);
    Dispatcher dispatcher(Options(), &fleet, *placement::MakePolicy("prefix_affinity", 1), &clock_, &probe_,
                          &index);
    const auto chain = kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")),
                                     std::vector<TokenId>(250 * kBlockTokens, TokenId(7)));
    for (const int seat : {0, 1}) {
      v1::WatchEvent event;
      event.set_sequence(1);
      v1::Snapshot& snapshot = *event.mutable_snapshot();
      snapshot.mutable_info()->set_worker_id(seat == 0 ? "d0" : "p0");
      snapshot.mutable_info()->set_role(seat == 0 ? v1::ROLE_DECODE : v1::ROLE_PREFILL);
      snapshot.mutable_info()->set_incarnation(seat + 1);
      snapshot.mutable_info()->set_peer_fetch(takes_part);
      snapshot.mutable_load()->set_total_blocks(10'000);
      snapshot.mutable_load()->set_free_blocks(9'000);
      if (seat == 0) {
        snapshot.mutable_load()->set_running(60);
        for (int i = 0; i < 200; ++i) snapshot.mutable_stored()->append(chain[i].bytes());
      }
      ASSERT_TRUE(fleet.OnEvent(seat, event).ok());
    }
    index.Speculate(fleet.view()->decode[0]->slot(), std::span(chain).subspan(200),
                    clock_.Now() + absl::Seconds(10));
    const auto ask = Ask(1, 1, 251 * kBlockTokens);
    ask->debug = true;
    ask->chain = chain;
    ASSERT_TRUE(dispatcher.Submit(ask).ok());
    ASSERT_EQ(results_[1].size(), 1u);
    const Placement& first = *results_[1][0];
    ASSERT_EQ(first.prefill.size(), 1u);
    v1::Finished finished;
    if (!takes_part) {
      EXPECT_EQ(first.fetch_from, nullptr);
    } else {
      ASSERT_NE(first.fetch_from, nullptr);
      EXPECT_EQ(first.fetch_from->identity().id, "d0");
      EXPECT_EQ(first.fetch_blocks, 200) << "the last 50 are expected there, and not said";
      finished.mutable_relay()->set_prefill_worker("p0");
      finished.mutable_relay()->set_fetched_tokens(3200);
      finished.mutable_relay()->set_fetch_seconds(1);
    }
    first.learn(&finished);
    EXPECT_EQ(finished.placement().fetch_from(), takes_part ? "d0" : "");
    EXPECT_EQ(finished.placement().fetch_blocks(), takes_part ? 200u : 0u);
    EXPECT_EQ(finished.placement().reason() == "fetch", takes_part);
    results_.clear();
  }
}

TEST_F(DispatcherTest, ItsThreadKeepsDeadlines) {
  MonotonicClock real;
  Dispatcher dispatcher(Options(), &fleet_, *placement::MakePolicy("round_robin", 1), &real, &probe_);
  dispatcher.StartTicking();
  absl::Mutex mutex;
  absl::Status answer;
  auto ask = std::make_shared<Dispatcher::Ask>();
  ask->deadline = real.Now() + absl::Milliseconds(20);
  ask->result = [&](int, absl::StatusOr<Placement> result) {
    absl::MutexLock lock(&mutex);
    answer = result.status();
  };
  ASSERT_TRUE(dispatcher.Submit(ask).ok());
  absl::MutexLock lock(&mutex);
  const auto answered = [&] { return !answer.ok(); };
  ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&answered), absl::Seconds(30)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer)) << answer;
}

}  // namespace
}  // namespace baton::router
