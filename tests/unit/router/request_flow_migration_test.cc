// Workers that are lost: before they accepted, and in the middle of an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/router/request_flow_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

TEST_F(RequestFlowTest, AWorkerLostBeforeItAcceptedIsAvoided) {
  Make();
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  const Actions again = flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"));
  EXPECT_EQ(Names(again), "requeue:0");
  EXPECT_EQ(Only<Requeue>(again).avoid, std::vector<Incarnation>{Incarnation(1)});
  flow_->OnPlaced(0, Place(1));
  const Actions end = flow_->OnDecodeEnd(0, 2, absl::UnavailableError("gone too"));
  EXPECT_EQ(Names(end), "withdraw finish:UNAVAILABLE");
  EXPECT_THAT(std::string(Only<Finish>(end).status.message()),
              HasSubstr("placed 2 times, and each time its decode worker failed"));
  EXPECT_THAT(std::string(Only<Finish>(end).status.message()),
              HasSubstr("decode worker d1 could not be reached, or broke off"));
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowTest, AWorkerThatSaysWhatIsWrongIsQuoted) {
  Make();
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  flow_->OnDecodeEnd(0, 1, absl::FailedPreconditionError("raise its --kv-memory"));
  const Actions end = flow_->OnPlaced(0, absl::UnavailableError("every decode worker failed"));
  EXPECT_EQ(Names(end), "withdraw finish:FAILED_PRECONDITION");
  EXPECT_EQ(Only<Finish>(end).status.message(), "decode worker d0: raise its --kv-memory");
}

// A worker of an older build ignores what it does not know.
TEST_F(RequestFlowTest, AnAnswerWithoutTheLogProbabilitiesThatWereAskedForIsAnError) {
  Make();
  Prepared prepared = Request();
  prepared.request.mutable_output()->set_prompt_logprobs(true);
  flow_->OnPrepared(std::move(prepared));
  flow_->OnPlaced(0, Place(0));
  flow_->OnDecodeEvent(0, 1, Accepted());
  flow_->OnWritten(true);
  const Actions end = flow_->OnDecodeEvent(0, 1, Token("a", 5));
  EXPECT_EQ(Only<Finish>(end).status.code(), absl::StatusCode::kUnimplemented);
}

TEST_F(RequestFlowTest, AnAnswerWithoutTheTracesThatWereAskedForIsAnError) {
  Make();
  Prepared prepared = Request();
  prepared.request.mutable_output()->set_explain(true);
  flow_->OnPrepared(std::move(prepared));
  flow_->OnPlaced(0, Place(0));
  flow_->OnDecodeEvent(0, 1, Accepted());
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent traced = Token("a", 5);
  traced.mutable_delta()->add_sampling();
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, traced)), "write:a read:0");
  flow_->OnWritten(true);
  // Another worker goes on with it.
  const Actions end = flow_->OnDecodeEvent(0, 1, Token("b", 6));
  EXPECT_EQ(Only<Finish>(end).status.code(), absl::StatusCode::kUnimplemented);
}

// Each log probability of the prompt is told once, by whichever worker.
TEST_F(RequestFlowTest, AWorkerLostMidPromptIsReplacedFromTheLogProbabilitiesThatCame) {
  Make();
  Prepared prepared = Request();
  prepared.request.mutable_output()->set_prompt_logprobs(true);
  const Actions submitted = flow_->OnPrepared(std::move(prepared));
  const DispatchRequest& wanted = Only<Submit>(submitted).request;
  EXPECT_TRUE(wanted.prefill_here);
  EXPECT_TRUE(wanted.chain.empty()) << "whatever is cached is of no use";
  const Actions placed = flow_->OnPlaced(0, Place(0));
  EXPECT_TRUE(Only<Dial>(placed).request.output().prompt_logprobs());
  EXPECT_EQ(Only<Dial>(placed).request.prompt_logprobs_sent(), 0u);
  EXPECT_TRUE(Only<Dial>(placed).request.prefill().empty());
  flow_->OnDecodeEvent(0, 1, Accepted());
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent told;
  told.mutable_delta()->add_prompt_logprobs();
  told.mutable_delta()->add_prompt_logprobs();
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, told)), "write: read:0");
  flow_->OnDecodeEnd(0, 1, absl::UnavailableError("socket closed"));
  const Actions again = flow_->OnPlaced(0, Place(1));
  EXPECT_EQ(Only<Dial>(again).request.prompt_logprobs_sent(), 2u);
  EXPECT_EQ(Only<Dial>(again).request.resumed_tokens(), 0u);
  flow_->OnCancelled();
  flow_->OnWritten(true);
}

TEST_F(RequestFlowTest, AWorkerLostMidAnswerIsReplacedFromTheTokensThatCame) {
  Run();
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent first = Token("a", 5);
  first.mutable_opening()->mutable_timing()->set_prefill_seconds(0.25);
  first.mutable_opening()->mutable_usage()->set_decode_cached_tokens(1);
  clock_.Advance(absl::Seconds(1));
  flow_->OnDecodeEvent(0, 1, first);
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("b", 6))), "write:b read:0");
  const Actions lost = flow_->OnDecodeEnd(0, 1, absl::UnavailableError("socket closed"));
  EXPECT_EQ(Names(lost), "requeue:0");
  EXPECT_EQ(Only<Requeue>(lost).avoid, std::vector<Incarnation>{Incarnation(1)});
  EXPECT_EQ(Bookings(), 0);
  const Actions placed = flow_->OnPlaced(0, Place(1));
  const baton::fleet::v1::DecodeRequest& request = Only<Dial>(placed).request;
  EXPECT_EQ(std::vector<int32_t>(request.token_ids().begin(), request.token_ids().end()),
            (std::vector<int32_t>{1, 2, 5, 6}));
  EXPECT_EQ(request.resumed_tokens(), 2u);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 2, Accepted())), "read:0") << "Started is said once";
  EXPECT_EQ(Names(flow_->OnWritten(true)), "")
      << "the write was of the lost call: nothing more to read there";
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("ghost"))), "") << "the lost worker's last words";
  clock_.Advance(absl::Seconds(3));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 2, Token("c", 7))), "write:c read:0");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "");
  baton::fleet::v1::DecodeEvent done = Done();
  v1::Finished& told = *done.mutable_finished();
  told.mutable_timing()->set_prefill_seconds(77);
  told.mutable_timing()->set_tpot_seconds(77);
  told.mutable_usage()->set_completion_tokens(3);
  told.mutable_usage()->set_decode_cached_tokens(2);
  const Actions end = flow_->OnDecodeEvent(0, 2, done);
  const v1::Finished& finished = Only<WriteLast>(end).response.finished();
  EXPECT_EQ(finished.relay().migrations(), 1u);
  EXPECT_EQ(finished.relay().decode_worker(), "d1");
  EXPECT_EQ(finished.usage().completion_tokens(), 3u);
  EXPECT_EQ(finished.usage().decode_cached_tokens(), 1u) << "as the first worker found it";
  EXPECT_NEAR(finished.timing().prefill_seconds(), 0.25, 1e-12);
  EXPECT_NEAR(finished.timing().ttft_seconds(), 1, 1e-12);
  EXPECT_NEAR(finished.timing().tpot_seconds(), 1.5, 1e-12) << "the break counts";
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 2, absl::OkStatus())), "");
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowTest, ADeltaOfTheLostCallThatWaitsIsWrittenOnceAndAsksForNothing) {
  Run();  // Started is still with the client
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("a", 5))), "read:0");
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"))), "requeue:0");
  flow_->OnPlaced(0, Place(1));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 2, Accepted())), "read:0");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 2, Token("b", 6))), "read:0");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 2, Token("c", 7))), "");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:a");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:b");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "read:0 write:c");
  flow_->OnCancelled();
  flow_->OnDecodeEnd(0, 2, absl::CancelledError(""));
  flow_->OnWritten(false);
}

TEST_F(RequestFlowTest, MigrationsAreLimitedAndTheEndIsSaidClearly) {
  Run();
  flow_->OnWritten(true);
  for (int attempt = 1; attempt <= 4; ++attempt) {
    flow_->OnDecodeEvent(0, attempt, Token("a"));
    flow_->OnWritten(true);
    const Actions lost = flow_->OnDecodeEnd(0, attempt, absl::UnavailableError("socket closed"));
    if (attempt < 4) {
      EXPECT_EQ(Names(lost), "requeue:0");
      flow_->OnPlaced(0, Place(0));
      flow_->OnDecodeEvent(0, attempt + 1, Accepted());
      continue;
    }
    const absl::Status& status = Only<Finish>(lost).status;
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("decode worker d0 was lost after 4 tokens; retry"));
  }
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowTest, ABrokenAnswerThatNobodyTakesSaysWhatWasLost) {
  Run();
  flow_->OnWritten(true);
  flow_->OnDecodeEvent(0, 1, Token("a"));
  flow_->OnWritten(true);
  flow_->OnDecodeEnd(0, 1, absl::UnavailableError("socket closed"));
  const Actions end = flow_->OnPlaced(0, absl::UnavailableError("no decode worker is up"));
  EXPECT_EQ(Names(end), "withdraw finish:UNAVAILABLE");
  EXPECT_THAT(std::string(Only<Finish>(end).status.message()),
              HasSubstr("decode worker d0 was lost after 1 tokens"));
}

TEST_F(RequestFlowTest, TokensWithoutNamesCantBeResumed) {
  Run();
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent nameless = Token("a");
  nameless.mutable_delta()->clear_token_ids();
  flow_->OnDecodeEvent(0, 1, nameless);
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"))), "withdraw finish:UNAVAILABLE");
}

}  // namespace
}  // namespace baton::router
