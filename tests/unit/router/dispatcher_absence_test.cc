// While no decode worker is up, requests wait for one that can be expected, and no longer than any may wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status.h"
#include "tests/unit/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

const absl::Status kRefused = absl::UnavailableError("connection refused");

class AbsenceTest : public DispatcherTest {
 protected:
  AbsenceTest() { fleet_.OnDown(1, kRefused); }

  void Drain(int endpoint, uint64_t sequence) {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(sequence);
    event.mutable_delta()->set_draining(true);
    ASSERT_TRUE(fleet_.OnEvent(endpoint, event).ok());
  }
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    dispatcher_.Tick();
  }
  void ExpectRefused(int name) {
    ASSERT_EQ(results_[name].size(), 1u);
    const absl::Status& status = results_[name][0].status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no decode worker is up"));
    EXPECT_EQ(rpc::ReasonOf(status), "NO_WORKER");
    EXPECT_TRUE(rpc::RetryDelay(status).has_value());
  }
};

TEST_F(AbsenceTest, ARequestWaitsForAWorkerThatLeft) {
  Up(0);
  fleet_.OnDown(0, kRefused);
  EXPECT_TRUE(dispatcher_.serves());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  Pass(absl::Seconds(59));
  EXPECT_TRUE(results_[1].empty());
  Up(0);
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(results_[1][0].ok()) << results_[1][0].status();
}

TEST_F(AbsenceTest, OneThatStaysAwayIsWaitedForAsLongAsAnyRequestMayWait) {
  Up(0);
  fleet_.OnDown(0, kRefused);
  Pass(absl::Seconds(10));
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  Pass(absl::Seconds(50));
  ExpectRefused(1);
  EXPECT_FALSE(dispatcher_.serves());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(2)).ok());
  ExpectRefused(2);
}

TEST_F(AbsenceTest, OneThatNeverWasIsWaitedForOnlyWhileItSaysThatItStarts) {
  fleet_.OnDown(0, kRefused);
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  ExpectRefused(1);
  fleet_.OnDown(0, rpc::StartingError());
  EXPECT_THAT(std::string(fleet_.NoDecodeWorker().message()), HasSubstr("d0:1 (it is starting"));
  EXPECT_FALSE(dispatcher_.serves()) << "there was none yet";
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(2)).ok());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(3)).ok());
  Pass(absl::Seconds(59));
  EXPECT_TRUE(results_[2].empty());
  // One that has begun to start and failed is started again.
  fleet_.OnDown(0, kRefused);
  EXPECT_TRUE(results_[2].empty());
  Pass(absl::Seconds(1));
  ExpectRefused(2);
  ExpectRefused(3);
}

TEST_F(AbsenceTest, AStartThatTakesLongerThanARequestMayWaitIsStillWaitedForByOthers) {
  fleet_.OnDown(0, rpc::StartingError());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  Pass(absl::Seconds(40));
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(2)).ok());
  Pass(absl::Seconds(20));
  ExpectRefused(1);
  EXPECT_TRUE(results_[2].empty());
  Up(0);
  ASSERT_EQ(results_[2].size(), 1u);
  EXPECT_TRUE(results_[2][0].ok());
}

TEST_F(AbsenceTest, TheReplacementOfAWorkerThatDrainsIsWaitedForHoweverLongItDrains) {
  Up(0);
  Drain(0, 2);
  Pass(absl::Minutes(10));
  EXPECT_TRUE(dispatcher_.serves());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  EXPECT_TRUE(results_[1].empty());
  // It has ended, and the next one is not there yet.
  fleet_.OnDown(0, kRefused);
  Pass(absl::Seconds(59));
  EXPECT_TRUE(results_[1].empty());
  EXPECT_TRUE(dispatcher_.serves());
  Up(1);
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(results_[1][0].ok());
}

TEST_F(AbsenceTest, AWorkerThatTestsItsLinkAfterItsStartIsWaitedFor) {
  fleet_.OnDown(0, rpc::StartingError());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(1);
  event.mutable_snapshot()->mutable_info()->set_role(baton::fleet::v1::ROLE_DECODE);
  event.mutable_snapshot()->mutable_info()->set_incarnation(7);
  event.mutable_snapshot()->set_draining(true);
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  Pass(absl::Seconds(30));
  EXPECT_TRUE(results_[1].empty());
  event.set_sequence(2);
  event.mutable_delta()->set_draining(false);
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(results_[1][0].ok());
}

TEST_F(AbsenceTest, AWorkerThatNeverTookRequestsAnnouncesNoOther) {
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(1);
  event.mutable_snapshot()->mutable_info()->set_role(baton::fleet::v1::ROLE_DECODE);
  event.mutable_snapshot()->mutable_info()->set_incarnation(7);
  event.mutable_snapshot()->set_draining(true);  // its link does not pass the test
  ASSERT_TRUE(fleet_.OnEvent(0, event).ok());
  ASSERT_TRUE(dispatcher_.Submit(MakeRequest(1)).ok());
  ExpectRefused(1);
}

TEST_F(AbsenceTest, AnAnswerThatWasBegunWaitsToo) {
  Up(0);
  const auto request = MakeRequest(1);
  const auto ids = dispatcher_.Submit(request);
  ASSERT_TRUE(ids.ok());
  ASSERT_TRUE(results_[1][0].ok());
  results_[1][0]->booking.Release();
  fleet_.OnDown(0, kRefused);
  dispatcher_.Requeue((*ids)[0], request, 0, {Incarnation(1)}, /*begun=*/true);
  Pass(absl::Seconds(30));
  EXPECT_EQ(results_[1].size(), 1u);
  Up(0);
  ASSERT_EQ(results_[1].size(), 2u);
  EXPECT_TRUE(results_[1][1].ok());
}

// With an objective for the first token, as routers have it.
class HurriedAbsenceTest : public AbsenceTest {
 protected:
  static Dispatcher::Options Hurried() {
    Dispatcher::Options options = Options();
    options.default_ttft = absl::Seconds(2);
    options.limits.entries = 2;
    return options;
  }
  Dispatcher hurried_{Hurried(), fleet_, *placement::MakePolicy("least_loaded", 1), clock_, probe_};

  void PassHurried(absl::Duration time) {
    clock_.Advance(time);
    hurried_.Tick();
  }
};

TEST_F(HurriedAbsenceTest, WhatIsDueDoesNotCountWhileNobodyIsThere) {
  Up(0);
  fleet_.OnDown(0, kRefused);
  ASSERT_TRUE(hurried_.Submit(MakeRequest(1)).ok());
  PassHurried(absl::Seconds(30));
  EXPECT_TRUE(results_[1].empty());
  // A full queue: a refusal that says when to try again.
  ASSERT_TRUE(hurried_.Submit(MakeRequest(2)).ok());
  const auto third = hurried_.Submit(MakeRequest(3));
  EXPECT_TRUE(absl::IsResourceExhausted(third.status())) << third.status();
  EXPECT_TRUE(rpc::RetryDelay(third.status()).has_value());
  Up(0);
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(results_[1][0].ok()) << results_[1][0].status();
  ASSERT_EQ(results_[2].size(), 1u);
  EXPECT_TRUE(results_[2][0].ok()) << results_[2][0].status();
}

TEST_F(HurriedAbsenceTest, OneThatWaitedBeforeTheWorkersLeftWaitsOn) {
  Up(0);
  fleet_.OnBroken(0);
  ASSERT_TRUE(hurried_.Submit(MakeRequest(1)).ok());
  PassHurried(absl::Seconds(1));
  fleet_.OnDown(0, kRefused);
  PassHurried(absl::Seconds(50));
  EXPECT_TRUE(results_[1].empty());
  Up(0);
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(results_[1][0].ok()) << results_[1][0].status();
}

TEST_F(HurriedAbsenceTest, AClientsOwnDeadlineHolds) {
  Up(0);
  fleet_.OnDown(0, kRefused);
  auto request = MakeRequest(1);
  request->deadline = request->deadline = clock_.Now() + absl::Seconds(5);
  ASSERT_TRUE(hurried_.Submit(request).ok());
  PassHurried(absl::Seconds(4.5));
  EXPECT_TRUE(results_[1].empty());
  PassHurried(absl::Seconds(0.5));
  ASSERT_EQ(results_[1].size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(results_[1][0].status())) << results_[1][0].status();
}

}  // namespace
}  // namespace baton::router
