// A router whose workers refuse, break, restart, disagree, vanish.
#include <atomic>
#include <memory>
#include <thread>

#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "tests/integration/router/router_fixture.h"

namespace baton::router {
namespace {

using fakes::FakeWorker;
using fakes::Script;
using fakes::Step;
using ::testing::HasSubstr;
using ::testing::Not;

RouterOptions InTurn() {
  RouterOptions options;
  options.policy = "round_robin";
  return options;
}

Script Refuse(const baton::fleet::v1::DecodeRequest&) {
  return {Step::End(absl::ResourceExhaustedError("no blocks"))};
}

TEST_F(RouterTest, AFullWorkerIsPassedOver) {
  FakeWorker* full = AddWorker({.id = "full"});
  AddWorker({.id = "free"});
  full->SetScript(Refuse);
  StartRouter(InTurn());
  for (int i = 0; i < 4; ++i) {
    const Answer answer = Generate(TextRequest());
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.finished[0].relay().decode_worker(), "free");
  }
  EXPECT_GE(Metric("baton_router_decode_refused_total"), 1);
}

TEST_F(RouterTest, AFullFleetIsWaitedFor) {
  FakeWorker* decode = AddWorker();
  decode->SetScript(Refuse);
  StartRouter();
  Answer answer;
  std::thread client([&] { answer = Generate(TextRequest()); });
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.calls >= 1; }));
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "late"), Step::Finish()};
  });
  baton::fleet::v1::Load relief;
  relief.set_total_blocks(4096);
  decode->Report(relief);
  client.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text(), "late");
  EXPECT_EQ(answer.started.size(), 1u);
}

TEST_F(RouterTest, ARequestPastItsDeadlineLeavesTheQueue) {
  FakeWorker* decode = AddWorker();
  decode->SetScript(Refuse);
  StartRouter();
  const Answer answer = Generate(TextRequest(), absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status)) << answer.status;
  EXPECT_TRUE(AwaitMetric("baton_router_queue_requests ", 0));
}

TEST_F(RouterTest, AFullQueueSaysWhenToComeAgain) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold(), Step::Finish()};
  });
  RouterOptions options;
  options.dispatcher.worker_concurrency = 1;
  options.dispatcher.limits.entries = 1;
  StartRouter(options);
  Answer running, waiting;
  std::thread first([&] { running = Generate(TextRequest()); });
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  std::thread second([&] { waiting = Generate(TextRequest()); });
  ASSERT_TRUE(AwaitMetric("baton_router_queue_requests ", 1));
  const Answer refused = Generate(TextRequest());
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status)) << refused.status;
  EXPECT_TRUE(rpc::RetryDelay(refused.status).has_value());
  EXPECT_EQ(rpc::ReasonOf(refused.status), "OVERLOADED");
  EXPECT_EQ(rpc::ReasonMetadata(refused.status, "cause"), "total_queue");
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Finish()};
  });
  decode->Release();
  first.join();
  second.join();
  EXPECT_TRUE(running.status.ok()) << running.status;
  EXPECT_TRUE(waiting.status.ok()) << waiting.status;
}

TEST_F(RouterTest, NoWorkerUpIsSaidWithoutTheAddresses) {
  StartRouter({}, {"127.0.0.1:1", "127.0.0.1:2"});
  const Answer answer = Generate(TextRequest());
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("no decode worker is up: the router's log"));
  EXPECT_THAT(std::string(answer.status.message()), Not(HasSubstr("127.0.0.1")));
}

TEST_F(RouterTest, AWorkerThatBreaksBeforeAcceptingIsReplaced) {
  FakeWorker* broken = AddWorker({.id = "broken"});
  AddWorker({.id = "sound"});
  broken->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::End(absl::UnavailableError("leaving"))};
  });
  StartRouter(InTurn());
  for (int i = 0; i < 4; ++i) {
    const Answer answer = Generate(TextRequest());
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.finished[0].relay().decode_worker(), "sound");
  }
}

TEST_F(RouterTest, AWorkerKilledMidStreamIsUnavailableAndItsReturnIsNoticed) {
  FakeWorker* decode = AddWorker({.id = "d"});
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold()};
  });
  RouterOptions options;
  options.dispatcher.max_wait = absl::Milliseconds(200);  // for another one
  StartRouter(options);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  const std::string address = decode->address();
  decode->Kill();
  const Answer rest = ReadAll(&context, reader.get());
  EXPECT_TRUE(absl::IsUnavailable(rest.status)) << rest.status;
  EXPECT_THAT(std::string(rest.status.message()),
              HasSubstr("decode worker d was lost after 1 tokens; retry"));
  EXPECT_TRUE(AwaitMetric("baton_router_workers{role=\"decode\"}", 0));

  AddWorker({.id = "again", .listen = address});
  EXPECT_TRUE(AwaitMetric("baton_router_workers{role=\"decode\"}", 1));
  const Answer answer = Generate(TextRequest());
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.finished[0].relay().decode_worker(), "again");
}

TEST_F(RouterTest, TheOnlyWorkerIsKilledMidAnswerAndTheAnswerGoesOnOnceItIsBack) {
  FakeWorker* decode = AddWorker({.id = "d"});
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold()};
  });
  StartRouter();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  const std::string address = decode->address();
  decode->Kill();
  EXPECT_TRUE(AwaitMetric("baton_router_workers{role=\"decode\"}", 0));
  // Another request comes meanwhile, and waits too.
  Answer second;
  std::thread client([&] { second = Generate(TextRequest()); });
  EXPECT_TRUE(AwaitMetric("baton_router_queue_requests ", 2));
  AddWorker({.id = "again", .incarnation = 2, .listen = address})
      ->SetScript([](const baton::fleet::v1::DecodeRequest& request) -> Script {
        if (request.resumed_tokens() == 0) return {Step::Accept(), Step::Token(9, "x"), Step::Finish()};
        return {Step::Accept(), Step::Token(7, "b"), Step::Finish()};
      });
  const Answer rest = ReadAll(&context, reader.get());
  EXPECT_TRUE(rest.status.ok()) << rest.status;
  ASSERT_EQ(rest.finished.size(), 1u);
  EXPECT_EQ(rest.finished[0].relay().migrations(), 1u);
  client.join();
  EXPECT_TRUE(second.status.ok()) << second.status;
}

TEST_F(RouterTest, ARequestWaitsForAWorkerThatSaysThatItStarts) {
  auto starting = rpc::StartingServer::Start({});
  ASSERT_TRUE(starting.ok()) << starting.status();
  const std::string address = (*starting)->address();
  RouterOptions options;
  options.dispatcher.settle_patience = absl::ZeroDuration();
  StartRouter(options, {address});
  EXPECT_TRUE(Await([&] { return router_->fleet().decode_expected(); }, "word of the worker"));
  Answer answer;
  std::thread client([&] { answer = Generate(TextRequest()); });
  EXPECT_TRUE(AwaitMetric("baton_router_queue_requests ", 1));
  (*starting)->HandOver().reset();
  AddWorker({.id = "d", .listen = address});
  client.join();
  EXPECT_TRUE(answer.status.ok()) << answer.status;
}

TEST_F(RouterTest, AWorkerKilledMidAnswerIsReplacedAndTheClientSeesOneAnswer) {
  for (const char* id : {"one", "two"}) {
    AddWorker({.id = id})->SetScript([](const baton::fleet::v1::DecodeRequest& request) -> Script {
      if (request.resumed_tokens() == 0) {
        return {Step::Accept(), Step::Token(5, "a"), Step::Token(6, "b"), Step::Hold()};
      }
      return {Step::Accept(), Step::Token(7, "c"), Step::Finish()};
    });
  }
  StartRouter();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest());
  v1::GenerateResponse response;
  std::string text;
  for (int read = 0; read < 3; ++read) {
    ASSERT_TRUE(reader->Read(&response));
    text += response.delta().text();
  }
  const bool first = workers_[0]->counts().running == 1;
  FakeWorker& dies = *workers_[first ? 0 : 1];
  FakeWorker& lives = *workers_[first ? 1 : 0];
  dies.Kill();
  const Answer rest = ReadAll(&context, reader.get());
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(text + rest.text(), "abc");
  EXPECT_TRUE(rest.started.empty());
  EXPECT_EQ(rest.finished.at(0).relay().migrations(), 1u);
  EXPECT_EQ(rest.finished[0].relay().decode_worker(), first ? "two" : "one");
  const baton::fleet::v1::DecodeRequest resumed = lives.requests().at(0);
  EXPECT_EQ(resumed.resumed_tokens(), 2u);
  const auto& ids = resumed.token_ids();
  EXPECT_EQ(ids[ids.size() - 2], 5);
  EXPECT_EQ(ids[ids.size() - 1], 6);
}

// As when this process stood still for longer than keepalives wait: all connections break, all workers live.
TEST_F(RouterTest, AWorkerWhoseConnectionBreaksStaysAndFinishesTheAnswer) {
  FakeWorker* decode = AddWorker({.id = "d"});
  decode->SetScript([](const baton::fleet::v1::DecodeRequest& request) -> Script {
    if (request.resumed_tokens() == 0) {
      return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::End(absl::UnavailableError("broken"))};
    }
    return {Step::Accept(), Step::Token(6, "b"), Step::Finish()};
  });
  StartRouter();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  decode->BreakWatches();
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.watches == 2; }));
  decode->Release();
  const Answer rest = ReadAll(&context, reader.get());
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(rest.text(), "b");
  EXPECT_EQ(rest.finished.at(0).relay().migrations(), 1u);
  EXPECT_EQ(Metric("baton_router_watch_restarts_total{reason=\"down\"}"), 0);
  EXPECT_EQ(Metric("baton_router_watch_restarts_total{reason=\"lost\"}"), 1);
  EXPECT_EQ(Metric("baton_router_workers{role=\"decode\"}"), 1);
}

TEST_F(RouterTest, TheOnlyWorkerIsAskedAgainWhenItFailsBeforeAccepting) {
  FakeWorker* decode = AddWorker();
  decode->SetScript(
      [calls = std::make_shared<std::atomic<int>>(0)](const baton::fleet::v1::DecodeRequest&) -> Script {
        if (++*calls < 3) return {Step::End(absl::UnavailableError("broken"))};
        return {Step::Accept(), Step::Token(5, "a"), Step::Finish()};
      });
  StartRouter();
  const Answer answer = Generate(TextRequest());
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(decode->counts().calls, 3);

  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::End(absl::UnavailableError("broken"))};
  });
  const Answer refused = Generate(TextRequest());
  EXPECT_TRUE(absl::IsUnavailable(refused.status)) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("placed 3 times"));
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("decode worker fake could not be reached"));
}

TEST_F(RouterTest, AGapInTheWatchBringsANewSnapshot) {
  FakeWorker* decode = AddWorker();
  StartRouter();
  baton::fleet::v1::Load load;
  load.set_running(1);
  load.set_total_blocks(4096);
  decode->Report(load);
  decode->LoseAnEvent();
  decode->Report(load);
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.watches == 2; }));
  EXPECT_TRUE(AwaitMetric("baton_router_watch_restarts_total{reason=\"gap\"}", 1));
  EXPECT_TRUE(Generate(TextRequest()).status.ok());
}

TEST_F(RouterTest, AWorkerOfAnotherModelIsLeftOut) {
  baton::fleet::v1::Fingerprint ours, theirs;
  ours.set_weights("one");
  theirs.set_weights("two");
  AddWorker({.id = "a", .fingerprint = ours});
  AddWorker({.id = "p", .role = baton::fleet::v1::ROLE_PREFILL, .fingerprint = ours});
  FakeWorker* other = AddWorker({.id = "other", .fingerprint = theirs});
  StartRouter(InTurn());
  for (int i = 0; i < 4; ++i) {
    const Answer answer = Generate(TextRequest());
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.finished[0].relay().decode_worker(), "a");
  }
  EXPECT_EQ(other->counts().calls, 0);
  EXPECT_EQ(Metric("baton_router_fingerprint_mismatches_total{field=\"weights\",worker=\"" +
                   other->address() + "\"}"),
            1);
  EXPECT_EQ(workers_[0]->requests()[0].fingerprint().weights(), "one");
}

TEST_F(RouterTest, ADrainingWorkerTakesNothingNew) {
  FakeWorker* leaving = AddWorker({.id = "leaving"});
  AddWorker({.id = "staying"});
  StartRouter(InTurn());
  leaving->ReportDraining(true);
  ASSERT_TRUE(AwaitMetric("baton_router_workers{role=\"decode\"}", 1));
  for (int i = 0; i < 4; ++i) {
    const Answer answer = Generate(TextRequest());
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.finished[0].relay().decode_worker(), "staying");
  }
}

TEST_F(RouterTest, StopEndsWhatRuns) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold()};
  });
  StartRouter();
  Answer answer;
  std::thread client([&] { answer = Generate(TextRequest()); });
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.running == 1; }));
  router_->Stop();
  client.join();
  EXPECT_FALSE(answer.status.ok());
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.running == 0; }));
}

}  // namespace
}  // namespace baton::router
