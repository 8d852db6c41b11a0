// Deadlines: of clients, by default, and what predictions refuse because of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status.h"
#include "tests/patience.h"
#include "tests/unit/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

// Says that everything takes two seconds.
class TwoSeconds final : public placement::Policy {
 public:
  std::string_view name() const override { return "two_seconds"; }
  placement::Selection Select(const Request&, const placement::Pools&) override {
    placement::Selection selection;
    selection.predicted.prefill = 2;
    return selection;
  }
};

TEST_F(DispatcherTest, APredictionRefusesWhatCannotMakeItsDeadline) {
  Dispatcher dispatcher(Options(), fleet_, std::make_unique<TwoSeconds>(), clock_, probe_);
  Up(0);
  const auto submit = [&](int name, absl::Duration deadline) {
    auto request = MakeRequest(name);
    request->deadline = clock_.Now() + deadline;
    const absl::Status taken = dispatcher.Submit(request).status();
    // Whoever needn't wait is judged as it is placed.
    return taken.ok() && !results_[name].empty() ? results_[name][0].status() : taken;
  };
  for (int i = 0; i < admission::TtftDeadlines::kOutcomesToTrust; ++i) {
    ASSERT_TRUE(submit(i, absl::Seconds(1)).ok()) << "not trusted yet";
    ASSERT_EQ(results_[i].size(), 1u);
    results_[i][0]->FirstToken(absl::Seconds(2));
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
  placement::Selection Select(const Request&, const placement::Pools& pools) override {
    placement::Selection selection;
    selection.predicted.prefill = 1;
    selection.predicted.wait = static_cast<double>(pools.decode[0].running);
    return selection;
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
    for (int i = 0; i < admission::TtftDeadlines::kOutcomesToTrust; ++i) {
      ASSERT_TRUE(dispatcher2_.Submit(MakeRequest(1000 + i)).ok());
      ASSERT_TRUE(results_[1000 + i][0].ok());
      End(1000 + i);
    }
  }
  void End(int name) {
    results_[name][0]->FirstToken(absl::Seconds(1));
    results_[name][0]->booking.Release();
  }
  std::shared_ptr<DispatchRequest> Now(int name) {
    auto request = MakeRequest(name);
    request->arrival = clock_.Now();
    return request;
  }

  Dispatcher dispatcher2_{WithDeadline(), fleet_, std::make_unique<ASecondEach>(), clock_, probe_};
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
        HasSubstr(
            "the first token is predicted in 4.000 s (0.000 s in this router's queue, 3.000 s in the queue "
            "of decode worker d0, 1.000 s for the prompt itself), and without a deadline it may take "
            "3.000 s here"));
    EXPECT_EQ(rpc::RetryDelay(status), absl::Seconds(1));
  }
  End(0);
  ASSERT_TRUE(dispatcher2_.Submit(Now(7)).ok());
  EXPECT_TRUE(results_[7][0].ok()) << "there is time again";
}

TEST_F(DefaultDeadlineTest, WhoWaitsHereIsNotToldOfTheWorkersQueueToo) {
  Dispatcher::Options options = WithDeadline();
  options.worker_concurrency = 2;
  Dispatcher dispatcher(options, fleet_, std::make_unique<ASecondEach>(), clock_, probe_);
  for (int i = 0; i < admission::TtftDeadlines::kOutcomesToTrust; ++i) {
    ASSERT_TRUE(dispatcher.Submit(MakeRequest(1000 + i)).ok());
    clock_.Advance(absl::Seconds(1));
    ASSERT_EQ(results_[1000 + i].size(), 1u);
    End(1000 + i);
  }
  std::vector<absl::Duration> left;
  for (int name = 0; name < 4; ++name) {
    auto request = Now(name);
    request->deadline = clock_.Now() + absl::Minutes(10);
    if (name == 3) {
      request->waits = [&left](int, const Waiting& waiting) {
        if (waiting.left.has_value()) left.push_back(*waiting.left);
      };
    }
    ASSERT_TRUE(dispatcher.Submit(request).ok());
  }
  ASSERT_TRUE(results_[2].empty()) << "two run, and two wait";
  clock_.Advance(absl::Seconds(1));
  End(0);
  ASSERT_EQ(results_[2].size(), 1u) << "so much is known of how long one waits";
  dispatcher.Tick();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_GE(left[0], absl::Seconds(1)) << "the prompt itself";
  EXPECT_LT(left[0], absl::Seconds(3)) << "with the two that run counted once more";
}

TEST_F(DefaultDeadlineTest, TheClientsOwnDeadlineCounts) {
  Teach();
  for (int name = 0; name < 5; ++name) {
    auto request = Now(name);
    request->deadline = clock_.Now() + absl::Seconds(60);
    ASSERT_TRUE(dispatcher2_.Submit(request).ok());
    EXPECT_TRUE(results_[name][0].ok()) << name;
  }
}

TEST_F(DefaultDeadlineTest, BeforePredictionsWereSeenToHoldNobodyIsRefusedByThemAndFewAreTried) {
  constexpr int kTried = admission::TtftDeadlines::kUntriedPerWorker;
  for (int name = 0; name < kTried + 2; ++name) ASSERT_TRUE(dispatcher2_.Submit(Now(name)).ok());
  for (int name = 0; name < kTried; ++name) {
    ASSERT_EQ(results_[name].size(), 1u) << name;
    EXPECT_TRUE(results_[name][0].ok()) << name;
  }
  EXPECT_TRUE(results_[kTried].empty()) << "waits for the first tokens of others";
  results_[0][0]->booking.FirstToken(clock_.Now());
  results_[0][0]->FirstToken(absl::Seconds(1));
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
  auto request = Now(0);
  for (int name = 0; name < 3; ++name) {
    auto submitted = dispatcher2_.Submit(name == 0 ? request : Now(name));
    ASSERT_TRUE(submitted.ok());
    entries.push_back(submitted->front());
  }
  clock_.Advance(absl::Seconds(10));
  dispatcher2_.Requeue(entries[0], request, 0, {}, /*begun=*/true);
  ASSERT_EQ(results_[0].size(), 2u);
  EXPECT_TRUE(results_[0][1].ok()) << results_[0][1].status();
}

TEST_F(DispatcherTest, ADeadlineIsAnsweredWhenItComes) {
  Up(0);
  dispatcher_.Submit(MakeRequest(1)).IgnoreError();
  dispatcher_.Submit(MakeRequest(2)).IgnoreError();
  auto late = MakeRequest(3);
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
  for (int name = 1; name <= 3; ++name) dispatcher_.Submit(MakeRequest(name)).IgnoreError();
  clock_.Advance(absl::Seconds(60));
  dispatcher_.Tick();
  ASSERT_EQ(results_[3].size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(results_[3][0].status()));
  EXPECT_TRUE(rpc::RetryDelay(results_[3][0].status()).has_value());
}

TEST_F(DispatcherTest, ItsThreadKeepsDeadlines) {
  MonotonicClock real;
  Dispatcher dispatcher(Options(), fleet_, *placement::MakePolicy("round_robin", 1), real, probe_);
  dispatcher.StartTicking();
  absl::Mutex mutex;
  absl::Status answer;
  auto request = std::make_shared<DispatchRequest>();
  request->deadline = real.Now() + absl::Milliseconds(20);
  request->result = [&](int, absl::StatusOr<Placement> result) {
    absl::MutexLock lock(&mutex);
    answer = result.status();
  };
  ASSERT_TRUE(dispatcher.Submit(request).ok());
  absl::MutexLock lock(&mutex);
  const auto answered = [&] { return !answer.ok(); };
  ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&answered), Scaled(absl::Seconds(30))));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer)) << answer;
}

}  // namespace
}  // namespace baton::router
