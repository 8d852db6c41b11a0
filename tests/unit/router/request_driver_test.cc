// RequestDriver between a fake client, scripted decode workers and the real dispatcher, without gRPC.
#include "router/api/request_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/status.h"
#include "router/billing/sqlite_ledger.h"
#include "tests/unit/router/driver_fixture.h"

namespace baton::router {
namespace {

using RequestDriverTest = DriverTest;

TEST_F(RequestDriverTest, ARequestGoesFromTheClientToAWorkerAndBack) {
  Start(Tokens());
  ASSERT_EQ(workers_.calls.size(), 1u);
  FakeDecodeClient::Worker& worker = *workers_.calls[0];
  EXPECT_EQ(worker.id, "d0");
  EXPECT_EQ(worker.request.token_ids_size(), 3);
  EXPECT_EQ(worker.request.sampling().seed(), 5u);
  EXPECT_EQ(Bookings(), 1);
  worker.Send(AcceptedEvent());
  ASSERT_EQ(client_->messages.size(), 1u);
  EXPECT_TRUE(client_->messages[0].has_started());
  Take();
  worker.Send(TokenEvent("a"));
  EXPECT_EQ(client_->messages[1].delta().text(), "a");
  worker.Send(FinishedEvent());
  EXPECT_EQ(client_->messages.size(), 2u) << "the client has the delta and has not taken it";
  Take();
  ASSERT_EQ(client_->messages.size(), 3u);
  EXPECT_TRUE(client_->messages[2].has_finished());
  ASSERT_TRUE(client_->status.has_value());
  EXPECT_TRUE(client_->status->ok());
  EXPECT_EQ(Bookings(), 0);
  worker.End(absl::OkStatus());
}

TEST_F(RequestDriverTest, ADeadlineEndsTheCallWithWhatItUsed) {
  const absl::Time deadline = clock_.Now() + absl::Seconds(2);
  Start(Tokens(), 100, deadline);
  workers_.calls.at(0)->Send(AcceptedEvent());
  Take();
  workers_.calls[0]->Send(TokenEvent("a"));
  Take();
  clock_.Advance(absl::Seconds(1));
  live_.EndDue();
  EXPECT_FALSE(client_->status.has_value());
  clock_.Advance(absl::Seconds(1));
  live_.EndDue();
  ASSERT_TRUE(client_->status.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*client_->status)) << *client_->status;
  ASSERT_TRUE(client_->usage.has_value());
  EXPECT_EQ(client_->usage->usage().completion_tokens(), 1u);
  EXPECT_TRUE(workers_.calls[0]->cancelled);
  workers_.calls[0]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, ADrainEndsTheCallWithWhatItUsedAndAReasonToTryAgain) {
  Run();
  Take();
  live_.DrainAt(clock_.Now());
  live_.EndDue();
  ASSERT_TRUE(client_->status.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*client_->status)) << *client_->status;
  EXPECT_EQ(rpc::ReasonOf(*client_->status), "ROUTER_DRAINING");
  EXPECT_EQ(rpc::RetryDelay(*client_->status), absl::ZeroDuration());
  ASSERT_TRUE(client_->usage.has_value());
  EXPECT_EQ(client_->usage->usage().completion_tokens(), 1u);
  workers_.calls[0]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, AWorkerIsAskedForNoMoreThanTheClientTakes) {
  Run();
  FakeDecodeClient::Worker& worker = *workers_.calls[0];
  for (int i = 1; i < RequestFlow::kHeldEvents; ++i) worker.Send(TokenEvent("b"));
  EXPECT_EQ(worker.asked, 0);
  Take();
  EXPECT_EQ(worker.asked, 1);
  driver_->OnCancelled();
  Take(false);
  worker.End(absl::CancelledError());
}

TEST_F(RequestDriverTest, ARequestIsJudgedByTheModelThatItNames) {
  v1::GenerateRequest request = Tokens();
  request.set_model("short");
  Start(request);
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kInvalidArgument) << "8 tokens more than its context";
  EXPECT_TRUE(workers_.calls.empty());

  client_ = std::make_shared<FakeClient>();
  request.mutable_stop()->set_max_tokens(1);
  Start(request);
  ASSERT_EQ(workers_.calls.size(), 1u);
  workers_.calls[0]->Send(AcceptedEvent());
  EXPECT_EQ(client_->messages.at(0).started().model(), "short");
  Take();
  workers_.calls[0]->Send(FinishedEvent());
  workers_.calls[0]->End(absl::OkStatus());

  client_ = std::make_shared<FakeClient>();
  request.set_model("gpt-9");
  Start(request);
  EXPECT_TRUE(absl::IsNotFound(*client_->status)) << *client_->status;
  EXPECT_EQ(client_->status->message(), R"(model: "gpt-9" is not served here; use one of "m", "short")");
  EXPECT_EQ(rpc::ReasonMetadata(*client_->status, "model"), "gpt-9");
}

TEST_F(RequestDriverTest, ANewGrammarHoldsUpNoOtherRequest) {
  absl::Notification go_on;
  HoldGrammars(go_on);
  Start(Constrained("[a-z]+"));
  const auto constrained = driver_;
  Await(*executor_);
  EXPECT_TRUE(workers_.calls.empty()) << "its grammar is not compiled";
  client_ = std::make_shared<FakeClient>();
  Start(Tokens(), Executor::kLargeBytes + 1);
  Await(*executor_);
  ASSERT_EQ(workers_.calls.size(), 1u);
  EXPECT_FALSE(workers_.calls[0]->request.has_grammar());
  go_on.Notify();
  Await(*grammars_);
  Await(*executor_);
  ASSERT_EQ(workers_.calls.size(), 2u);
  EXPECT_TRUE(workers_.calls[1]->request.has_grammar());
  // It is known now.
  absl::Notification again;
  HoldGrammars(again);
  client_ = std::make_shared<FakeClient>();
  Start(Constrained("[a-z]+"));
  Await(*executor_);
  again.Notify();
  Await(*grammars_);  // their thread has left `again`
  ASSERT_EQ(workers_.calls.size(), 3u);
  EXPECT_EQ(workers_.calls[2]->request.grammar().lark(), workers_.calls[1]->request.grammar().lark());
}

TEST_F(RequestDriverTest, TooManyNewGrammarsAreRefused) {
  absl::Notification go_on;
  HoldGrammars(go_on);
  Start(Constrained("[a-z]+"));
  const auto first = driver_;
  const auto first_client = client_;
  Await(*executor_);
  client_ = std::make_shared<FakeClient>();
  Start(Constrained("[0-9]+"));
  Await(*executor_);
  go_on.Notify();
  ASSERT_TRUE(client_->status.has_value());
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(client_->status->message()), testing::HasSubstr("grammars wait to be compiled"));
  Await(*grammars_);
  Await(*executor_);
  EXPECT_FALSE(first_client->status.has_value());
  EXPECT_EQ(workers_.calls.size(), 1u);
}

TEST_F(RequestDriverTest, AGrammarThatDoesNotCompileIsTheClients) {
  for (int i = 0; i < 2; ++i) {  // the second time it is known
    client_ = std::make_shared<FakeClient>();
    Start(Constrained("("));
    Await(*executor_);
    Await(*grammars_);
    Await(*executor_);
    ASSERT_TRUE(client_->status.has_value());
    EXPECT_EQ(client_->status->code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(client_->status->message()), testing::HasSubstr("constraint.regex"));
  }
}

TEST_F(RequestDriverTest, CallsOfWorkersCarryTheClientsTrace) {
  const telemetry::Tracer tracer;
  context_.tracer = &tracer;
  telemetry::TraceContext trace;
  trace.trace_id = telemetry::NewTraceId();
  trace.span_id = telemetry::NewSpanId();
  trace.state = "shop=7";
  for (const telemetry::TraceContext& said : {trace, telemetry::TraceContext()}) {
    client_ = std::make_shared<FakeClient>();
    driver_ = RequestDriver::Create(context_, client_, absl::InfiniteFuture(), "Generate", said);
    driver_->Start<v1::GenerateRequest>({}, 100, [](v1::GenerateRequest* request) {
      *request = Tokens();
      return absl::OkStatus();
    });
    const telemetry::TraceContext& carried = workers_.last_trace;
    EXPECT_TRUE(carried.valid()) << "a request without a trace has one of its own";
    EXPECT_EQ(carried.trace_id == trace.trace_id, said.valid());
    EXPECT_NE(carried.span_id, said.span_id);
    EXPECT_EQ(carried.state, said.state);
    driver_->OnCancelled();
    workers_.calls.back()->End(absl::CancelledError());
  }
}

TEST_F(RequestDriverTest, AMessageThatCannotBeParsedIsTheAnswer) {
  driver_ = RequestDriver::Create(context_, client_, absl::InfiniteFuture(), "Generate");
  driver_->Start<v1::GenerateRequest>(
      {}, 100, [](v1::GenerateRequest*) { return absl::InvalidArgumentError("malformed"); });
  EXPECT_TRUE(absl::IsInvalidArgument(*client_->status)) << *client_->status;
  EXPECT_EQ(client_->status->message(), "malformed");
  EXPECT_EQ(rpc::RequestIdOf(*client_->status).size(), 16u);
  EXPECT_TRUE(workers_.calls.empty());
}

TEST_F(RequestDriverTest, ACallerWithoutAKeyIsRefusedBeforeItsMessageIsParsed) {
  const std::string file = testing::TempDir() + "/request_driver_tenants.json";
  std::ofstream(file) << R"({"tenants": [{"name": "a", "certificates": ["a.example.org"]}]})";
  OpenTenants({.file = file});
  driver_ = RequestDriver::Create(context_, client_, absl::InfiniteFuture(), "Generate");
  driver_->Start<v1::GenerateRequest>({}, 100, [](v1::GenerateRequest*) {
    ADD_FAILURE() << "parsed";
    return absl::OkStatus();
  });
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kUnauthenticated);

  client_ = std::make_shared<FakeClient>();
  driver_ = RequestDriver::Create(context_, client_, absl::InfiniteFuture(), "Generate");
  driver_->Start<v1::GenerateRequest>({.certificate_names = {"a.example.org"}}, 100,
                                      [](v1::GenerateRequest* request) {
                                        *request = Tokens();
                                        return absl::OkStatus();
                                      });
  ASSERT_EQ(workers_.calls.size(), 1u) << "known by its certificate";
  driver_->OnCancelled();
  workers_.calls[0]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, ALargeMessageIsParsedOnTheExecutor) {
  Start(Tokens(), Executor::kLargeBytes + 1);
  executor_ = nullptr;  // runs what it was given, then ends
  ASSERT_EQ(workers_.calls.size(), 1u);
  driver_->OnCancelled();
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kCancelled);
  workers_.calls[0]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, ACancelledRequestHangsUpAndGivesEverythingBack) {
  Run();
  driver_->OnCancelled();
  EXPECT_TRUE(workers_.calls[0]->cancelled);
  EXPECT_EQ(Bookings(), 0);
  EXPECT_FALSE(client_->status.has_value()) << "a message is still with the client";
  Take(false);
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(client_->usage.has_value());
  EXPECT_EQ(client_->usage->usage().prompt_tokens(), 3u);
  EXPECT_EQ(client_->usage->usage().plain_tokens(), 3u);
  EXPECT_EQ(client_->usage->usage().completion_tokens(), 1u);
  workers_.calls[0]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, ARequestThatWaitsIsWithdrawnWhenItsClientGoes) {
  fleet_.OnDown(0, absl::UnavailableError("gone"));
  Start(Tokens());
  EXPECT_TRUE(workers_.calls.empty());
  driver_->OnCancelled();
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(client_->usage.has_value()) << "no worker accepted it";
  Up(1);
  dispatcher_.Pump();
  EXPECT_TRUE(workers_.calls.empty()) << "nobody waits for it";
}

TEST_F(RequestDriverTest, AnAnswerGoesOnElsewhereWhenItsWorkerIsLost) {
  Up(1);
  Run();
  const std::string first = workers_.calls[0]->id;
  workers_.calls[0]->End(absl::UnavailableError("gone"));
  ASSERT_EQ(workers_.calls.size(), 2u);
  EXPECT_NE(workers_.calls[1]->id, first);
  EXPECT_EQ(workers_.calls[1]->request.resumed_tokens(), 1u);
  EXPECT_EQ(Bookings(), 1);
  driver_->OnCancelled();
  Take(false);
  workers_.calls[1]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, AClientThatStopsReadingIsAborted) {
  Run();
  EXPECT_EQ(driver_->IfStalled(clock_.Now()), nullptr);
  clock_.Advance(absl::Seconds(31));
  const std::function<void()> end = driver_->IfStalled(clock_.Now());
  ASSERT_NE(end, nullptr);
  end();
  ASSERT_TRUE(client_->aborted.has_value());
  EXPECT_EQ(client_->aborted->code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(workers_.calls[0]->cancelled);
  Take(false);
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kAborted);
  workers_.calls[0]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, WhatARefusedRequestIsToldComesFromAdmission) {
  dispatcher_.SetTenant(tenant_, "default", {.requests_per_minute = 1});
  Run();
  auto first = driver_;
  auto first_client = client_;
  client_ = std::make_shared<FakeClient>();
  Start(Tokens());
  ASSERT_TRUE(client_->status.has_value());
  EXPECT_EQ(client_->status->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(workers_.calls.size(), 1u);
  first->OnCancelled();
  first_client->writing = false;
  first->OnWritten(false);
  workers_.calls[0]->End(absl::CancelledError());
}

TEST_F(RequestDriverTest, AClientIsToldOfTheEndWhenTheLedgerHasTheRequest) {
  const std::string file = testing::TempDir() + "/request_driver_ledger.db";
  std::filesystem::remove(file);
  billing::LedgerProbe probe(metrics_);
  auto ledger = billing::Ledger::Open({.ledger_file = file}, probe);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  context_.ledger = ledger->get();
  absl::Notification told;
  client_->on_finish = [&] {
    const auto sheet = (*billing::SqliteLedger::OpenToRead(file))->Read("", "");
    ASSERT_EQ(sheet->size(), 1u);
    const auto& [key, sums] = *sheet->begin();
    EXPECT_EQ(key.tenant, "default");
    EXPECT_EQ(key.model, "m");
    EXPECT_EQ(sums.requests, 1);
    EXPECT_EQ(sums.tokens, (billing::TokenCounts{.plain = 3, .completion = 1}));
    told.Notify();
  };
  Run();
  Take();
  workers_.calls[0]->Send(FinishedEvent());
  workers_.calls[0]->End(absl::OkStatus());
  told.WaitForNotification();
  *ledger = nullptr;
  std::filesystem::remove(file);
}

TEST_F(RequestDriverTest, NothingHoldsADriverWhenItsRequestIsOver) {
  Run();
  const std::weak_ptr<RequestDriver> driver = driver_;
  driver_->OnCancelled();
  Take(false);
  workers_.calls[0]->End(absl::CancelledError());
  driver_ = nullptr;
  EXPECT_TRUE(driver.expired());
  live_.WaitUntilNone();
}

}  // namespace
}  // namespace baton::router
