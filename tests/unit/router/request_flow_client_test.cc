// Clients that cancel, stop reading, or go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/router/request_flow_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

TEST_F(RequestFlowTest, CancelFinishesWhenTheWriteIsBack) {
  Run();
  EXPECT_EQ(Names(flow_->OnCancelled()), "withdraw hangup:0");
  EXPECT_EQ(Bookings(), 0);
  EXPECT_EQ(Names(flow_->OnWritten(false)), "finish:CANCELLED");
}

TEST_F(RequestFlowTest, AClientThatStopsReadingIsGivenUpAndTheWorkerLetGoAtOnce) {
  Run();
  clock_.Advance(absl::Seconds(29));
  EXPECT_EQ(Names(flow_->OnMaybeStalled()), "") << "Started has waited for 29 s";
  clock_.Advance(absl::Seconds(1));
  const Actions actions = flow_->OnMaybeStalled();
  EXPECT_EQ(Names(actions), "withdraw hangup:0 break:ABORTED");
  EXPECT_THAT(std::string(Only<Break>(actions).status.message()), HasSubstr("did not read for 30 s"));
  EXPECT_EQ(Bookings(), 0);
  EXPECT_EQ(Names(flow_->OnMaybeStalled()), "") << "once";
  EXPECT_EQ(Names(flow_->OnWritten(false)), "finish:ABORTED");
  EXPECT_THAT(metrics_.Text(), HasSubstr("baton_router_clients_stalled_total 1"));
}

TEST_F(RequestFlowTest, ASlowClientIsNotAStalledOne) {
  Run();
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(29));
    EXPECT_EQ(Names(flow_->OnMaybeStalled()), "");
    EXPECT_EQ(Names(flow_->OnWritten(true)), "");
    clock_.Advance(absl::Seconds(60));
    EXPECT_EQ(Names(flow_->OnMaybeStalled()), "") << "it is the worker that takes its time";
    EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("a"))), "write:a read:0");
  }
  flow_->OnCancelled();
  flow_->OnWritten(false);
}

TEST_F(RequestFlowTest, AClientThatNeverReadIsGivenUpThoughItsAnswerIsDone) {
  Run();
  flow_->OnDecodeEvent(0, 1, Done());
  flow_->OnDecodeEnd(0, 1, absl::OkStatus());
  clock_.Advance(absl::Seconds(30));
  EXPECT_EQ(Names(flow_->OnMaybeStalled()), "withdraw break:ABORTED") << "nothing else would end it";
  EXPECT_EQ(Names(flow_->OnWritten(false)), "finish:ABORTED");
}

TEST_F(RequestFlowTest, TheLastMessageToo) {
  Run();
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Done())), "read:0 last:finished0");
  clock_.Advance(absl::Seconds(30));
  EXPECT_EQ(Names(flow_->OnMaybeStalled()), "break:ABORTED");
}

TEST_F(RequestFlowTest, CancelWhileWaitingWithdraws) {
  Make();
  flow_->OnPrepared(Request());
  EXPECT_EQ(Names(flow_->OnCancelled()), "withdraw finish:CANCELLED");
  // The placement was on its way.
  EXPECT_EQ(Names(flow_->OnPlaced(0, Place(0))), "");
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowTest, CancelAtTheDeadlineIsTheDeadline) {
  // The client's clock is a little ahead: the call was on its way for so long.
  for (const absl::Duration left : {absl::ZeroDuration(), absl::Milliseconds(60)}) {
    Make(clock_.Now() + absl::Seconds(1));
    flow_->OnPrepared(Request());
    clock_.Advance(absl::Seconds(1) - left);
    EXPECT_EQ(Names(flow_->OnCancelled()), "withdraw finish:DEADLINE_EXCEEDED") << left;
  }
  Make(clock_.Now() + absl::Seconds(1));
  flow_->OnPrepared(Request());
  clock_.Advance(absl::Milliseconds(800));
  EXPECT_EQ(Names(flow_->OnCancelled()), "withdraw finish:CANCELLED");
}

}  // namespace
}  // namespace baton::router
