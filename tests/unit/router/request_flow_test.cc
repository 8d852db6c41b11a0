#include "router/api/request_flow.h"

#include <gtest/gtest.h>

#include "common/rpc/status.h"
#include "tests/unit/router/request_flow_fixture.h"

namespace baton::router {
namespace {

TEST_F(RequestFlowTest, OneChoiceFromBeginningToEnd) {
  Run();
  EXPECT_EQ(Names(flow_->OnWritten(true)), "");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("a"))), "write:a read:0");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "");
  EXPECT_EQ(Bookings(), 1);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Done())), "read:0 last:finished0") << "with the call's end";
  EXPECT_EQ(Bookings(), 0);
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::OkStatus())), "");
  EXPECT_EQ(Names(flow_->OnCancelled()), "") << "nothing follows the last";
}

TEST_F(RequestFlowTest, APeerIsNamedToThoseThatFetchAndAreNotItself) {
  const auto worker = [](const std::string& id, bool peer_fetch) {
    return std::make_shared<fleet::Worker>(fleet::Worker::Identity{.endpoint = 7,
                                                                   .address = id + ":1",
                                                                   .id = id,
                                                                   .role = fleet::Role::kPrefill,
                                                                   .incarnation = {},
                                                                   .fingerprint = {},
                                                                   .peer_fetch = peer_fetch});
  };
  const auto peer = worker("peer", true);
  for (const bool prefill : {true, false}) {
    Make();
    flow_->OnPrepared(Request());
    Placement placement = Place(0);
    const auto decode = std::make_shared<fleet::Worker>(fleet::Worker::Identity{.endpoint = 0,
                                                                                .address = "d0:1",
                                                                                .id = "d0",
                                                                                .role = fleet::Role::kDecode,
                                                                                .incarnation = Incarnation(1),
                                                                                .fingerprint = {},
                                                                                .peer_fetch = true});
    placement.decode = decode;
    if (prefill) placement.prefill = {worker("p0", true), worker("p1", false), peer};
    placement.fetch_from = peer;
    placement.selection.fetch_blocks = 12;
    const Actions actions = flow_->OnPlaced(0, std::move(placement));
    const baton::fleet::v1::DecodeRequest& request = Only<Dial>(actions).request;
    EXPECT_EQ(request.fetch().blocks(), prefill ? 0u : 12u) << "the decode worker's own, if it prefills";
    flow_->OnCancelled();
    flow_->OnDecodeEnd(0, 1, absl::CancelledError(""));
    if (!prefill) continue;
    ASSERT_EQ(request.prefill_size(), 3);
    EXPECT_EQ(request.prefill(0).fetch().worker(), "peer");
    EXPECT_EQ(request.prefill(0).fetch().address(), "peer:1");
    EXPECT_EQ(request.prefill(0).fetch().blocks(), 12u);
    EXPECT_EQ(request.prefill(1).fetch().blocks(), 0u) << "it takes no part";
    EXPECT_EQ(request.prefill(2).fetch().blocks(), 0u) << "it is the peer";
  }
}

TEST_F(RequestFlowTest, TheClientHearsWhichBuildAnswers) {
  Make();
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  const Actions actions = flow_->OnDecodeEvent(0, 1, Accepted());
  const std::string build = Only<Write>(actions).response.started().build();
  EXPECT_EQ(build, model_.BuildWith(fleet_.view()->answer_digest));
  EXPECT_EQ(build.size(), 16u);
  EXPECT_NE(metrics_.Text().find("baton_router_accepted_total{build=\"" + build + "\"} 1"),
            std::string::npos);
  flow_->OnWritten(true);
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, AnotherBuildThanTheOneAskedForIsRefused) {
  for (const bool same : {true, false}) {
    Make();
    Prepared prepared = Request();
    prepared.build = same ? model_.BuildWith(fleet_.view()->answer_digest) : "0123456789abcdef";
    flow_->OnPrepared(std::move(prepared));
    const Actions actions = flow_->OnPlaced(0, Place(0));
    if (same) {
      EXPECT_EQ(Names(actions), "dial:0.1");
      flow_->OnCancelled();
      continue;
    }
    const absl::Status status = Only<Finish>(actions).status;
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_EQ(rpc::ReasonOf(status), "BUILD_NOT_SERVED");
    EXPECT_EQ(Bookings(), 0);
  }
}

TEST_F(RequestFlowTest, AnAnswerDoesNotGoOnWithAnotherBuild) {
  const auto other = std::make_shared<fleet::Worker>(fleet::Worker::Identity{.endpoint = 1,
                                                                             .address = "d1:1",
                                                                             .id = "d1",
                                                                             .role = fleet::Role::kDecode,
                                                                             .incarnation = Incarnation(2),
                                                                             .fingerprint = {},
                                                                             .answer_digest = "other"});
  for (const bool begun : {false, true}) {
    Make();
    flow_->OnPrepared(Request(2));
    flow_->OnPlaced(0, Place(0));
    flow_->OnDecodeEvent(0, 1, Accepted());
    flow_->OnWritten(true);
    if (begun) {
      flow_->OnDecodeEvent(0, 1, Token("a"));
      flow_->OnWritten(true);
      flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"));
    }
    // The same worker, or the other choice.
    Placement placement = Place(1);
    placement.decode = other;
    const absl::Status status = Only<Finish>(flow_->OnPlaced(begun ? 0 : 1, std::move(placement))).status;
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(rpc::ReasonOf(status), "WORKER_LOST");
    EXPECT_EQ(Bookings(), 0);
  }
}

TEST_F(RequestFlowTest, AClientThatAsksHearsOfItsPromptUntilItsFirstToken) {
  Make();
  Prepared prepared = Request();
  prepared.progress = true;
  flow_->OnPrepared(std::move(prepared));
  EXPECT_EQ(Names(flow_->OnWaits(0, {.ahead = 3, .left = absl::Seconds(2)})), "write:progress");
  EXPECT_EQ(Names(flow_->OnWaits(0, {.ahead = 2})), "") << "the client has not taken the one before";
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnWaits(0, {.ahead = 2})), "") << "too soon";
  clock_.Advance(absl::Seconds(1));
  const Actions waits = flow_->OnWaits(0, {.ahead = 1, .left = absl::Seconds(1)});
  EXPECT_EQ(Only<Write>(waits).response.progress().requests_ahead(), 1u);
  EXPECT_EQ(Only<Write>(waits).response.progress().predicted_seconds(), 1);
  flow_->OnWritten(true);
  flow_->OnPlaced(0, Place(0));
  EXPECT_EQ(Names(flow_->OnWaits(0, {.ahead = 1})), "") << "it was placed";
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Accepted())), "write:started read:0");
  flow_->OnWritten(true);
  clock_.Advance(absl::Seconds(1));
  baton::fleet::v1::DecodeEvent event;
  event.mutable_progress()->set_state(v1::Progress::STATE_COMPUTING);
  event.mutable_progress()->set_prompt_tokens_done(1);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, event)), "write:progress read:0");
  flow_->OnWritten(true);
  const Actions token = flow_->OnDecodeEvent(0, 1, Token("a"));
  EXPECT_EQ(Names(token), "write:progress read:0");
  EXPECT_EQ(Only<Write>(token).response.progress().prompt_tokens_done(), 2u);
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:a");
  flow_->OnWritten(true);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, event)), "read:0") << "nobody wants to know";
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, TheDecodeRequestIsComplete) {
  Make();
  flow_->OnPrepared(Request(2));
  Placement placement = Place(1);
  const auto prefill = std::make_shared<fleet::Worker>(fleet::Worker::Identity{.endpoint = 2,
                                                                               .address = "p0:1",
                                                                               .id = "p0",
                                                                               .role = fleet::Role::kPrefill,
                                                                               .incarnation = {},
                                                                               .fingerprint = {}});
  placement.prefill.push_back(prefill);
  const Actions actions = flow_->OnPlaced(1, std::move(placement));
  const Dial& dial = Only<Dial>(actions);
  EXPECT_EQ(dial.worker->identity().endpoint, 1);
  EXPECT_EQ(dial.request.request_id(), "r");
  EXPECT_EQ(dial.request.router_id(), "me");
  EXPECT_EQ(dial.request.sampling().seed(), 101u);
  EXPECT_EQ(dial.request.choice(), 1u);
  ASSERT_EQ(dial.request.prefill_size(), 1);
  EXPECT_EQ(dial.request.prefill(0).address(), "p0:1");
  EXPECT_TRUE(dial.request.output().token_ids());
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, AnAnswerWithoutMaxTokensEndsWhereTheWorkersMemoryDoes) {
  Up(0, 4);
  Up(1, 2);
  for (const bool open_ended : {false, true}) {
    Make();
    Prepared prepared = Request();
    prepared.request.mutable_stop()->set_max_tokens(1000);
    prepared.open_ended = open_ended;
    const Actions submitted = flow_->OnPrepared(std::move(prepared));
    EXPECT_EQ(Only<Submit>(submitted).request.open_ended, open_ended);
    const Actions placed = flow_->OnPlaced(0, Place(0));
    EXPECT_EQ(Only<Dial>(placed).request.stop().max_tokens(), open_ended ? 4u * 16 - 2 : 1000u);
    // The next worker has less, and what was sent already is no reason to ask for nothing.
    flow_->OnDecodeEvent(0, 1, Accepted());
    for (int token = 0; token < 40; ++token) {
      flow_->OnWritten(true);
      flow_->OnDecodeEvent(0, 1, Token("a"));
    }
    flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"));
    const Actions again = flow_->OnPlaced(0, Place(1));
    EXPECT_EQ(Only<Dial>(again).request.stop().max_tokens(), open_ended ? 41u : 1000u);
    flow_->OnCancelled();
    flow_->OnWritten(false);
    flow_->OnDecodeEnd(0, 2, absl::CancelledError(""));
  }
}

TEST_F(RequestFlowTest, HoldsTwoEventsThatTheClientHasNotTakenAndReadsNoFurther) {
  Run();  // Started is with the client and has not left
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("a"))), "read:0") << "not written beside Started";
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("b"))), "") << "that is enough";
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:a");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "read:0 write:b") << "one was taken";
  EXPECT_EQ(Names(flow_->OnWritten(true)), "") << "it has been asked for";
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, WhatWaitsTogetherLeavesTogether) {
  Run();
  flow_->OnDecodeEvent(0, 1, Token("a"));
  flow_->OnDecodeEvent(0, 1, Token("b"));
  EXPECT_TRUE(Only<Write>(flow_->OnWritten(true)).more);
  EXPECT_FALSE(Only<Write>(flow_->OnWritten(true)).more) << "nothing waits behind it";
  flow_->OnWritten(true);
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, TokenIdsAreShownOnlyToWhoAsked) {
  Run();
  flow_->OnWritten(true);
  const Actions hidden = flow_->OnDecodeEvent(0, 1, Token("a"));
  EXPECT_EQ(Only<Write>(hidden).response.delta().token_ids_size(), 0);
  flow_->OnWritten(true);
  flow_->OnCancelled();
  Make();
  Prepared requests = Request();
  requests.token_ids = true;
  flow_->OnPrepared(requests);
  flow_->OnPlaced(0, Place(0));
  flow_->OnDecodeEvent(0, 1, Accepted());
  flow_->OnWritten(true);
  const Actions shown = flow_->OnDecodeEvent(0, 1, Token("a", 9));
  EXPECT_EQ(Only<Write>(shown).response.delta().token_ids(0), 9);
  flow_->OnWritten(true);
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, ARefusalIsFinal) {
  Make();
  const Actions actions = flow_->OnPrepared(absl::InvalidArgumentError("text: empty"));
  EXPECT_EQ(Names(actions), "withdraw finish:INVALID_ARGUMENT");
  EXPECT_EQ(Only<Finish>(actions).status.message(), "text: empty");
}

TEST_F(RequestFlowTest, AFullQueueIsTheAnswer) {
  Make();
  flow_->OnPrepared(Request());
  EXPECT_EQ(Names(flow_->OnNotAdmitted(absl::ResourceExhaustedError("full"))),
            "withdraw finish:RESOURCE_EXHAUSTED");
}

TEST_F(RequestFlowTest, ARefusedChoiceWaitsAgain) {
  Make();
  flow_->OnPrepared(Request());
  for (int attempt = 1; attempt <= 5; ++attempt) {
    EXPECT_EQ(Names(flow_->OnPlaced(0, Place(0))), "dial:0." + std::to_string(attempt));
    EXPECT_EQ(Names(flow_->OnDecodeEnd(0, attempt, absl::ResourceExhaustedError("no blocks"))), "requeue:0");
    EXPECT_EQ(Bookings(), 0);
    EXPECT_FALSE(fleet_.view()->decode[0]->breaker().Allows(clock_.Now()));
  }
  flow_->OnPlaced(0, Place(1));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 6, Accepted())), "write:started read:0");
  flow_->OnWritten(true);
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, AStreamThatJustEndsIsAnError) {
  Run();
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::OkStatus())), "withdraw finish:INTERNAL");
}

TEST_F(RequestFlowTest, TokensBeforeAcceptanceAreAnError) {
  Make();
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("a"))), "withdraw hangup:0 finish:INTERNAL");
}

TEST_F(RequestFlowTest, ChoicesShareOneStream) {
  Make();
  flow_->OnPrepared(Request(2));
  flow_->OnPlaced(0, Place(0));
  flow_->OnPlaced(1, Place(1));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(1, 1, Accepted())), "write:started read:1");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Accepted())), "read:0") << "one Started";
  EXPECT_EQ(Names(flow_->OnDecodeEvent(1, 1, Token("b"))), "read:1");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("a"))), "read:0");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:b");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "write:a");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Done())), "read:0 write:finished0");
  EXPECT_EQ(Names(flow_->OnDecodeEvent(1, 1, Done())), "read:1");
  EXPECT_EQ(Names(flow_->OnWritten(true)), "last:finished1");
}

TEST_F(RequestFlowTest, OneFailedChoiceEndsAll) {
  Make();
  flow_->OnPrepared(Request(2));
  flow_->OnPlaced(0, Place(0));
  flow_->OnPlaced(1, Place(1));
  flow_->OnDecodeEvent(0, 1, Accepted());
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnDecodeEnd(1, 1, absl::InvalidArgumentError("no"))),
            "withdraw hangup:0 finish:INVALID_ARGUMENT");
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowTest, ThePhasesAddUpToTtft) {
  Make();
  clock_.Advance(absl::Milliseconds(5));
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  flow_->OnDecodeEvent(0, 1, Accepted());
  flow_->OnWritten(true);
  clock_.Advance(absl::Milliseconds(100));
  flow_->OnDecodeEvent(0, 1, Token("a"));
  flow_->OnWritten(true);
  clock_.Advance(absl::Milliseconds(20));
  flow_->OnDecodeEvent(0, 1, Token("b"));
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent done = Done();
  done.mutable_finished()->mutable_timing()->set_decode_queue_seconds(0.010);
  done.mutable_finished()->mutable_timing()->set_prefill_seconds(0.060);
  done.mutable_finished()->mutable_timing()->set_first_token_seconds(0.001);
  const Actions actions = flow_->OnDecodeEvent(0, 1, done);
  const v1::Timing& timing = Only<WriteLast>(actions).response.finished().timing();
  EXPECT_DOUBLE_EQ(timing.admit_seconds(), 0.005);
  EXPECT_DOUBLE_EQ(timing.decode_queue_seconds(), 0.010);
  EXPECT_DOUBLE_EQ(timing.prefill_seconds(), 0.060);
  EXPECT_NEAR(timing.first_token_seconds(), 0.030, 1e-12);
  EXPECT_NEAR(timing.ttft_seconds(), 0.105, 1e-12);
  EXPECT_EQ(timing.ttft_seconds(), timing.admit_seconds() + timing.decode_queue_seconds() +
                                       timing.prefill_queue_seconds() + timing.prefill_seconds() +
                                       timing.transfer_seconds() + timing.first_token_seconds());
  EXPECT_NEAR(timing.tpot_seconds(), 0.020, 1e-12);
  EXPECT_NEAR(timing.e2e_seconds(), 0.125, 1e-12);
}

TEST(ProbeTest, AnAnswerIsGoodputWhenItKeepsBothBounds) {
  telemetry::Metrics metrics;
  Probe probe(metrics, {.ttft_seconds = 1, .tpot_seconds = 0.02});
  probe.Judge(1.0, 0.02);
  probe.Judge(0.5, std::nullopt);  // a single token has no pace
  probe.Judge(1.1, 0.01);
  probe.Judge(0.1, 0.03);
  probe.Judge(0.1, 0.021);
  const std::string text = metrics.Text();
  EXPECT_NE(text.find("baton_router_answers_total{slo=\"met\"} 2"), std::string::npos) << text;
  EXPECT_NE(text.find("baton_router_answers_total{slo=\"missed\"} 3"), std::string::npos) << text;
}

TEST(SplitTtftTest, NeverReportsMoreThanThereWas) {
  v1::Timing worker;
  worker.set_prefill_seconds(3);
  worker.set_transfer_seconds(1);
  const PhaseSeconds phases = SplitTtft(2.5, 0.5, worker);
  EXPECT_DOUBLE_EQ(phases.prefill, 1.5);
  EXPECT_DOUBLE_EQ(phases.transfer, 0.5);
  EXPECT_DOUBLE_EQ(phases.first_token, 0);
  EXPECT_DOUBLE_EQ(phases.Sum(), 2.5);
}

}  // namespace
}  // namespace baton::router
