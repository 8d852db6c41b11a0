#include "router/request_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/telemetry/metrics.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

// Short names of actions, in order: "withdraw hangup:0 finish:CANCELLED".
std::string Names(const Actions& actions) {
  struct Namer {
    std::string operator()(const Submit&) { return "submit"; }
    std::string operator()(const SubmitAgain& again) { return "again:" + std::to_string(again.choice); }
    std::string operator()(const Withdraw&) { return "withdraw"; }
    std::string operator()(const Dial& dial) {
      return "dial:" + std::to_string(dial.choice) + "." + std::to_string(dial.attempt);
    }
    std::string operator()(const ReadNext& next) { return "read:" + std::to_string(next.choice); }
    std::string operator()(const HangUp& hang_up) { return "hangup:" + std::to_string(hang_up.choice); }
    std::string operator()(const Write& write) {
      if (write.response.has_started()) return "write:started";
      if (write.response.has_delta()) return "write:" + write.response.delta().text();
      return "write:finished" + std::to_string(write.response.finished().choice());
    }
    std::string operator()(const WriteLast& last) {
      return "last:finished" + std::to_string(last.response.finished().choice());
    }
    std::string operator()(const Break& break_off) {
      return "break:" + absl::StatusCodeToString(break_off.status.code());
    }
    std::string operator()(const Finish& finish) {
      return "finish:" + absl::StatusCodeToString(finish.status.code());
    }
  };
  std::string names;
  for (const Action& action : actions) {
    if (!names.empty()) names += " ";
    names += std::visit(Namer(), action);
  }
  return names;
}

template <typename T>
const T& Only(const Actions& actions) {
  const T* found = nullptr;
  for (const Action& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found = one;
  }
  BATON_CHECK(found != nullptr) << Names(actions);
  return *found;
}

v1::DecodeEvent Accepted() {
  v1::DecodeEvent event;
  event.mutable_accepted();
  return event;
}

v1::DecodeEvent Token(const std::string& text, int32_t id = 7) {
  v1::DecodeEvent event;
  event.mutable_delta()->set_text(text);
  event.mutable_delta()->set_tokens(1);
  event.mutable_delta()->add_token_ids(id);
  return event;
}

v1::DecodeEvent Done() {
  v1::DecodeEvent event;
  event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  return event;
}

class RequestFlowTest : public ::testing::Test {
 protected:
  RequestFlowTest() {
    for (int seat = 0; seat < 2; ++seat) {
      v1::WatchEvent event;
      event.set_sequence(1);
      v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
      info->set_worker_id("d" + std::to_string(seat));
      info->set_role(v1::ROLE_DECODE);
      info->set_incarnation(seat + 1);
      BATON_CHECK(fleet_.OnEvent(seat, event).ok());
    }
  }

  void Make(absl::Time deadline = absl::InfiniteFuture()) {
    flow_ = std::make_unique<RequestFlow>(RequestFlow::Options{.request_id = "r",
                                                               .router_id = "me",
                                                               .max_attempts = 2,
                                                               .arrival = clock_.Now(),
                                                               .deadline = deadline,
                                                               .client_stall = absl::Seconds(30)},
                                          &clock_, &probe_);
  }

  Prepared Request(int choices = 1) {
    Prepared prepared;
    prepared.request.add_token_ids(1);
    prepared.request.add_token_ids(2);
    prepared.model = "m";
    prepared.choices = choices;
    prepared.seed = 100;
    return prepared;
  }

  Placement Place(int seat) {
    Placement placement;
    const auto worker = fleet_.view()->decode[seat];
    placement.decode = worker;
    placement.booking = fleet_.Book(worker, nullptr, 2, clock_.Now());
    return placement;
  }

  int64_t Bookings() {
    int64_t all = 0;
    for (const auto& worker : fleet_.view()->decode) all += worker->BookedRequests();
    return all;
  }

  // One choice, accepted, Started with the client.
  void Run() {
    Make();
    EXPECT_EQ(Names(flow_->OnPrepared(Request())), "submit");
    EXPECT_EQ(Names(flow_->OnPlaced(0, Place(0))), "dial:0.1");
    EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Accepted())), "write:started read:0");
  }

  FakeClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{&metrics_};
  fleet::Fleet fleet_{{.router_id = "me",
                       .seats = {{"d0:1", fleet::Role::kDecode}, {"d1:1", fleet::Role::kDecode}},
                       .vocabulary = 0},
                      &probe_};
  std::unique_ptr<RequestFlow> flow_;
};

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
    return std::make_shared<fleet::Worker>(fleet::Worker::Identity{.seat = 7,
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
    const auto decode = std::make_shared<fleet::Worker>(fleet::Worker::Identity{.seat = 0,
                                                                                .address = "d0:1",
                                                                                .id = "d0",
                                                                                .role = fleet::Role::kDecode,
                                                                                .incarnation = Incarnation(1),
                                                                                .fingerprint = {},
                                                                                .peer_fetch = true});
    placement.decode = decode;
    if (prefill) placement.prefill = {worker("p0", true), worker("p1", false), peer};
    placement.fetch_from = peer;
    placement.fetch_blocks = 12;
    const Actions actions = flow_->OnPlaced(0, std::move(placement));
    const v1::DecodeRequest& request = Only<Dial>(actions).request;
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

TEST_F(RequestFlowTest, TheDecodeRequestIsComplete) {
  Make();
  flow_->OnPrepared(Request(2));
  Placement placement = Place(1);
  const auto prefill = std::make_shared<fleet::Worker>(fleet::Worker::Identity{.seat = 2,
                                                                               .address = "p0:1",
                                                                               .id = "p0",
                                                                               .role = fleet::Role::kPrefill,
                                                                               .incarnation = {},
                                                                               .fingerprint = {}});
  placement.prefill.push_back(prefill);
  const Actions actions = flow_->OnPlaced(1, std::move(placement));
  const Dial& dial = Only<Dial>(actions);
  EXPECT_EQ(dial.worker->identity().seat, 1);
  EXPECT_EQ(dial.request.request_id(), "r");
  EXPECT_EQ(dial.request.router_id(), "me");
  EXPECT_EQ(dial.request.sampling().seed(), 101u);
  EXPECT_EQ(dial.request.choice(), 1u);
  ASSERT_EQ(dial.request.prefill_size(), 1);
  EXPECT_EQ(dial.request.prefill(0).address(), "p0:1");
  EXPECT_TRUE(dial.request.output().token_ids());
  flow_->OnCancelled();
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

TEST_F(RequestFlowTest, TokenIdsAreShownOnlyToWhoAsked) {
  Run();
  flow_->OnWritten(true);
  const Actions hidden = flow_->OnDecodeEvent(0, 1, Token("a"));
  EXPECT_EQ(Only<Write>(hidden).response.delta().token_ids_size(), 0);
  flow_->OnWritten(true);
  flow_->OnCancelled();
  Make();
  Prepared asks = Request();
  asks.token_ids = true;
  flow_->OnPrepared(asks);
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
    EXPECT_EQ(Names(flow_->OnDecodeEnd(0, attempt, absl::ResourceExhaustedError("no blocks"))), "again:0");
    EXPECT_EQ(Bookings(), 0);
    EXPECT_FALSE(fleet_.view()->decode[0]->GateAllows(clock_.Now()));
  }
  flow_->OnPlaced(0, Place(1));
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 6, Accepted())), "write:started read:0");
  flow_->OnWritten(true);
  flow_->OnCancelled();
}

TEST_F(RequestFlowTest, AWorkerLostBeforeItAcceptedIsAvoided) {
  Make();
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  const Actions again = flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"));
  EXPECT_EQ(Names(again), "again:0");
  EXPECT_EQ(Only<SubmitAgain>(again).avoid, std::vector<Incarnation>{Incarnation(1)});
  flow_->OnPlaced(0, Place(1));
  const Actions end = flow_->OnDecodeEnd(0, 2, absl::UnavailableError("gone too"));
  EXPECT_EQ(Names(end), "withdraw finish:UNAVAILABLE");
  EXPECT_THAT(std::string(Only<Finish>(end).status.message()), HasSubstr("2 decode workers failed"));
  EXPECT_THAT(std::string(Only<Finish>(end).status.message()),
              HasSubstr("decode worker d1 at d1:1: gone too"));
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowTest, AWorkerThatSaysWhatIsWrongIsQuoted) {
  Make();
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  flow_->OnDecodeEnd(0, 1, absl::FailedPreconditionError("raise its --kv-memory"));
  const Actions end = flow_->OnPlaced(0, absl::UnavailableError("every decode worker failed"));
  EXPECT_EQ(Names(end), "withdraw finish:FAILED_PRECONDITION");
  EXPECT_EQ(Only<Finish>(end).status.message(), "decode worker d0 at d0:1: raise its --kv-memory");
}

TEST_F(RequestFlowTest, AWorkerLostMidAnswerIsReplacedFromTheTokensThatCame) {
  Run();
  flow_->OnWritten(true);
  v1::DecodeEvent first = Token("a", 5);
  first.mutable_opening()->mutable_timing()->set_prefill(0.25);
  first.mutable_opening()->mutable_usage()->set_decode_cached_tokens(1);
  clock_.Advance(absl::Seconds(1));
  flow_->OnDecodeEvent(0, 1, first);
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("b", 6))), "write:b read:0");
  const Actions lost = flow_->OnDecodeEnd(0, 1, absl::UnavailableError("socket closed"));
  EXPECT_EQ(Names(lost), "again:0");
  EXPECT_EQ(Only<SubmitAgain>(lost).avoid, std::vector<Incarnation>{Incarnation(1)});
  EXPECT_EQ(Bookings(), 0);
  const Actions placed = flow_->OnPlaced(0, Place(1));
  const v1::DecodeRequest& request = Only<Dial>(placed).request;
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
  v1::DecodeEvent done = Done();
  v1::Finished& told = *done.mutable_finished();
  told.mutable_timing()->set_prefill(77);
  told.mutable_timing()->set_tpot(77);
  told.mutable_usage()->set_completion_tokens(3);
  told.mutable_usage()->set_decode_cached_tokens(2);
  const Actions end = flow_->OnDecodeEvent(0, 2, done);
  const v1::Finished& finished = Only<WriteLast>(end).response.finished();
  EXPECT_EQ(finished.relay().migrations(), 1u);
  EXPECT_EQ(finished.relay().decode_worker(), "d1");
  EXPECT_EQ(finished.usage().completion_tokens(), 3u);
  EXPECT_EQ(finished.usage().decode_cached_tokens(), 1u) << "as the first worker found it";
  EXPECT_NEAR(finished.timing().prefill(), 0.25, 1e-12);
  EXPECT_NEAR(finished.timing().ttft(), 1, 1e-12);
  EXPECT_NEAR(finished.timing().tpot(), 1.5, 1e-12) << "the break counts";
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 2, absl::OkStatus())), "");
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(RequestFlowTest, ADeltaOfTheLostCallThatWaitsIsWrittenOnceAndAsksForNothing) {
  Run();  // Started is still with the client
  EXPECT_EQ(Names(flow_->OnDecodeEvent(0, 1, Token("a", 5))), "read:0");
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"))), "again:0");
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
      EXPECT_EQ(Names(lost), "again:0");
      flow_->OnPlaced(0, Place(0));
      flow_->OnDecodeEvent(0, attempt + 1, Accepted());
      continue;
    }
    const absl::Status& status = Only<Finish>(lost).status;
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("decode worker d0 at d0:1 was lost after 4 tokens; retry"));
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
              HasSubstr("decode worker d0 at d0:1 was lost after 1 tokens"));
}

TEST_F(RequestFlowTest, TokensWithoutNamesCantBeResumed) {
  Run();
  flow_->OnWritten(true);
  v1::DecodeEvent nameless = Token("a");
  nameless.mutable_delta()->clear_token_ids();
  flow_->OnDecodeEvent(0, 1, nameless);
  flow_->OnWritten(true);
  EXPECT_EQ(Names(flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"))), "withdraw finish:UNAVAILABLE");
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

TEST_F(RequestFlowTest, CancelAfterTheDeadlineIsTheDeadline) {
  Make(clock_.Now() + absl::Seconds(1));
  flow_->OnPrepared(Request());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Names(flow_->OnCancelled()), "withdraw finish:DEADLINE_EXCEEDED");
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
  v1::DecodeEvent done = Done();
  done.mutable_finished()->mutable_timing()->set_decode_queue(0.010);
  done.mutable_finished()->mutable_timing()->set_prefill(0.060);
  done.mutable_finished()->mutable_timing()->set_first_token(0.001);
  const Actions actions = flow_->OnDecodeEvent(0, 1, done);
  const v1::Timing& timing = Only<WriteLast>(actions).response.finished().timing();
  EXPECT_DOUBLE_EQ(timing.admit(), 0.005);
  EXPECT_DOUBLE_EQ(timing.decode_queue(), 0.010);
  EXPECT_DOUBLE_EQ(timing.prefill(), 0.060);
  EXPECT_NEAR(timing.first_token(), 0.030, 1e-12);
  EXPECT_NEAR(timing.ttft(), 0.105, 1e-12);
  EXPECT_EQ(timing.ttft(), timing.admit() + timing.decode_queue() + timing.prefill_queue() +
                               timing.prefill() + timing.transfer() + timing.first_token());
  EXPECT_NEAR(timing.tpot(), 0.020, 1e-12);
  EXPECT_NEAR(timing.e2e(), 0.125, 1e-12);
}

TEST(ProbeTest, AnAnswerIsGoodputWhenItKeepsBothBounds) {
  telemetry::Metrics metrics;
  Probe probe(&metrics, {.ttft_seconds = 1, .tpot_seconds = 0.02});
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
  worker.set_prefill(3);
  worker.set_transfer(1);
  const PhaseSeconds phases = SplitTtft(2.5, 0.5, worker);
  EXPECT_DOUBLE_EQ(phases.prefill, 1.5);
  EXPECT_DOUBLE_EQ(phases.transfer, 0.5);
  EXPECT_DOUBLE_EQ(phases.first_token, 0);
  EXPECT_DOUBLE_EQ(phases.Sum(), 2.5);
}

// Any order of events that gRPC, the dispatcher and workers can produce: one Finish, one Write at a time, no
// booking left.
TEST_F(RequestFlowTest, KeepsItsPromisesUnderRandomEvents) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  for (int round = 0; round < 500; ++round) {
    Make(clock_.Now() + absl::Milliseconds(50));
    const int choices = 1 + draw(3);
    struct Call {
      bool waiting = false, open = false, readable = false;
      int attempt = 0;
    };
    std::vector<Call> calls(choices);
    bool writing = false;
    int finishes = 0;
    const auto perform = [&](const Actions& actions) {
      for (const Action& action : actions) {
        ASSERT_EQ(finishes, 0) << "after Finish: " << Names(actions);
        if (std::holds_alternative<Submit>(action)) {
          for (Call& call : calls) call.waiting = true;
        } else if (const auto* again = std::get_if<SubmitAgain>(&action)) {
          calls[again->choice].waiting = true;
        } else if (std::holds_alternative<Withdraw>(action)) {
          for (Call& call : calls) call.waiting = false;
        } else if (const auto* dial = std::get_if<Dial>(&action)) {
          ASSERT_FALSE(calls[dial->choice].open);
          calls[dial->choice] = {.waiting = false, .open = true, .readable = true, .attempt = dial->attempt};
        } else if (const auto* next = std::get_if<ReadNext>(&action)) {
          ASSERT_FALSE(calls[next->choice].readable) << "asked twice";
          calls[next->choice].readable = true;
        } else if (std::holds_alternative<Write>(action)) {
          ASSERT_FALSE(writing);
          writing = true;
        } else if (std::holds_alternative<Finish>(action) || std::holds_alternative<WriteLast>(action)) {
          ASSERT_FALSE(writing);
          ++finishes;
        }
      }
    };
    perform(flow_->OnPrepared(Request(choices)));
    for (int step = 0; step < 400 && finishes == 0; ++step) {
      const int choice = draw(choices);
      Call& call = calls[choice];
      switch (draw(7)) {
        case 0:
          if (call.waiting) {
            call.waiting = false;
            perform(draw(30) == 0 ? flow_->OnPlaced(choice, absl::UnavailableError("none"))
                                  : flow_->OnPlaced(choice, Place(draw(2))));
          }
          break;
        case 1:
        case 2:
        case 3:
          if (call.open && call.readable) {
            call.readable = false;
            const int kind = draw(12);
            perform(flow_->OnDecodeEvent(choice, call.attempt,
                                         kind < 5    ? Accepted()
                                         : kind < 11 ? Token("t")
                                                     : Done()));
          }
          break;
        case 4:
          if (call.open && draw(4) == 0) {
            call.open = false;
            call.readable = false;
            const absl::Status ends[] = {absl::OkStatus(), absl::UnavailableError(""),
                                         absl::ResourceExhaustedError("")};
            perform(flow_->OnDecodeEnd(choice, call.attempt, ends[draw(3)]));
          }
          break;
        case 5:
          if (writing) {
            writing = false;
            perform(flow_->OnWritten(draw(60) != 0));
          }
          break;
        default:
          clock_.Advance(absl::Milliseconds(1));
          if (draw(80) == 0) perform(flow_->OnCancelled());
      }
    }
    if (finishes == 0) perform(flow_->OnCancelled());
    if (writing) {
      writing = false;
      perform(flow_->OnWritten(false));
    }
    ASSERT_EQ(finishes, 1);
    ASSERT_EQ(Bookings(), 0);
  }
}

}  // namespace
}  // namespace baton::router
