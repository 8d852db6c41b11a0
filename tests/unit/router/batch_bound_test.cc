// Decode workers get no more answers than their steps have time for.
#include "router/dispatch/batch_bound.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

TEST(BatchBoundTest, CountsAllRequestsWhereFirstTokensComeSoon) {
  BatchBound bound;
  EXPECT_TRUE(bound.Allows(4, 3, 3));
  EXPECT_TRUE(bound.Allows(4, 0, 3));
  EXPECT_FALSE(bound.Allows(4, 4, 4));
  EXPECT_FALSE(bound.Allows(4, 1, 4));
  bound.ObserveFirstToken(0.01);
  bound.ObserveAnswer(10);
  EXPECT_TRUE(bound.Allows(4, 3, 3));
  EXPECT_FALSE(bound.Allows(4, 1, 4));
}

// First tokens take ten times as long as answers: of 40 that wait for theirs, four run at a time.
TEST(BatchBoundTest, WherePromptsQueueTheQueueBoundsTheBatch) {
  BatchBound bound;
  bound.ObserveFirstToken(10);
  bound.ObserveAnswer(1);
  EXPECT_TRUE(bound.Allows(5, 4, 40));
  EXPECT_FALSE(bound.Allows(5, 4, 80));
}

TEST(BatchBoundTest, AnIdleWorkerTakesARequestInAnyCase) {
  BatchBound bound;
  for (const int64_t answers : {-1, 0, 1}) EXPECT_TRUE(bound.Allows(answers, 0, 0)) << answers;
  EXPECT_FALSE(bound.Allows(1, 1, 1));
}

TEST(BatchBoundTest, AbsurdTimesAreIgnored) {
  BatchBound bound;
  for (const double seconds :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    bound.ObserveFirstToken(seconds);
    bound.ObserveAnswer(seconds);
  }
  EXPECT_TRUE(bound.Allows(4, 3, 3));
  EXPECT_FALSE(bound.Allows(4, 4, 4));
}

// One decode worker that takes 100 requests, and has time for two answers.
class InTimeTest : public DispatcherTest {
 protected:
  static Dispatcher::Options Roomy() {
    Dispatcher::Options options = Options();
    options.worker_concurrency = 100;
    return options;
  }
  InTimeTest() {
    Up(0);
    Tell(2);
  }
  void Tell(uint32_t answers_in_time) {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(++told_ + 1);
    baton::fleet::v1::Load& load = *event.mutable_delta()->mutable_load();
    load.set_total_blocks(1000);
    load.set_answers_in_time(answers_in_time);
    ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  }
  void Submit(int name, absl::Duration deadline = absl::InfiniteDuration()) {
    auto request = MakeRequest(name);
    if (deadline < absl::InfiniteDuration()) request->deadline = clock_.Now() + deadline;
    ASSERT_TRUE(roomy_.Submit(std::move(request)).ok());
  }
  bool Placed(int name) { return !results_[name].empty() && results_[name][0].ok(); }
  // Predictions are trusted from here on.
  void Trust() {
    for (int i = 0; i < admission::TtftDeadlines::kOutcomesToTrust; ++i) {
      Submit(1000 + i);
      results_[1000 + i].at(0)->FirstToken(absl::Milliseconds(1));
      results_[1000 + i].at(0)->booking.Release();
    }
  }

  uint64_t told_ = 0;
  Dispatcher roomy_{Roomy(), fleet_, *placement::MakePolicy("least_loaded", 1), clock_, probe_};
};

TEST_F(InTimeTest, AnotherWaitsUntilOneEnds) {
  Trust();
  for (const int name : {0, 1, 2}) Submit(name);
  EXPECT_TRUE(Placed(0) && Placed(1));
  EXPECT_FALSE(Placed(2));
  results_[0][0]->booking.Release();
  EXPECT_TRUE(Placed(2));
}

TEST_F(InTimeTest, AWorkerWithMoreTimeTakesMore) {
  Trust();
  for (const int name : {0, 1, 2}) Submit(name);
  ASSERT_FALSE(Placed(2));
  Tell(3);
  EXPECT_TRUE(Placed(2));
  Tell(0);  // it does not say: an older one
  for (const int name : {3, 4}) Submit(name);
  EXPECT_TRUE(Placed(3) && Placed(4));
}

TEST_F(InTimeTest, ItsOwnDeadlineGoesFirst) {
  Trust();
  for (const int name : {0, 1}) Submit(name);
  Submit(2, absl::Seconds(5));
  Submit(3);
  EXPECT_FALSE(Placed(2));
  clock_.Advance(absl::Seconds(4));
  roomy_.Tick();
  EXPECT_FALSE(Placed(2)) << "a second is left";
  clock_.Advance(absl::Milliseconds(950));
  roomy_.Tick();
  EXPECT_TRUE(Placed(2)) << "it could not be met any more";
  EXPECT_FALSE(Placed(3)) << "nobody waits for this one";
}

TEST_F(InTimeTest, AnAnswerThatHasBegunGoesOn) {
  Trust();
  auto request = MakeRequest(0);
  const auto ids = roomy_.Submit(request);
  ASSERT_TRUE(ids.ok());
  for (const int name : {1, 2}) Submit(name);
  ASSERT_FALSE(Placed(2));
  // Its worker is lost, and another request takes the place.
  results_[0][0]->booking.Release();
  ASSERT_TRUE(Placed(2));
  roomy_.Requeue(ids->front(), request, 0, {}, /*begun=*/true);
  ASSERT_EQ(results_[0].size(), 2u);
  EXPECT_TRUE(results_[0][1].ok());
}

TEST_F(InTimeTest, ATenantWithAllThatItMayRunOvertakesNobody) {
  Trust();
  roomy_.SetTenant(admission::TenantId(0), "default", {.concurrency = 2});
  for (const int name : {0, 1}) Submit(name);
  Submit(2, absl::Seconds(1));
  clock_.Advance(absl::Milliseconds(950));
  roomy_.Tick();
  EXPECT_FALSE(Placed(2));
}

}  // namespace
}  // namespace baton::router
