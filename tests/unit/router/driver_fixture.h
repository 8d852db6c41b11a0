// RequestDriver between fake clients, scripted decode workers and the real dispatcher, without gRPC.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "router/api/request_driver.h"
#include "tests/patience.h"
#include "tests/unit/router/two_decode_workers.h"

namespace baton::router {

// A client that takes a message when the test says so.
class FakeClient final : public ClientStream {
 public:
  void Write(const v1::GenerateResponse& response, bool) override {
    EXPECT_FALSE(writing) << "one message at a time";
    EXPECT_FALSE(status.has_value()) << "a message after the end";
    writing = true;
    messages.push_back(response);
  }
  void Finish(const absl::Status& end, const v1::GenerateResponse* last,
              const v1::RequestUsage* used) override {
    if (used != nullptr) usage = *used;
    EXPECT_FALSE(writing) << "finished over a message";
    EXPECT_FALSE(status.has_value()) << "finished twice";
    if (last != nullptr) messages.push_back(*last);
    status = end;
    if (on_finish) on_finish();
  }
  void Abort(const absl::Status& why) override { aborted = why; }

  std::vector<v1::GenerateResponse> messages;
  bool writing = false;
  std::optional<absl::Status> status;
  std::optional<absl::Status> aborted;
  std::optional<v1::RequestUsage> usage;
  std::function<void()> on_finish;
};

// Decode workers whose events the test sends.
class FakeDecodeClient final : public DecodeClient {
 public:
  struct Worker {
    std::string id;
    baton::fleet::v1::DecodeRequest request;
    Callbacks callbacks;
    int asked = 1;
    bool cancelled = false;

    void Send(baton::fleet::v1::DecodeEvent event) {
      EXPECT_GT(asked, 0) << "an event that was not asked for";
      --asked;
      callbacks.event(std::move(event));
    }
    void End(absl::Status status) {
      const Callbacks last = std::exchange(callbacks, {});
      last.done(std::move(status));
    }
  };

  std::shared_ptr<DecodeCall> Call(const fleet::Worker& worker, baton::fleet::v1::DecodeRequest request,
                                   absl::Time, const telemetry::TraceContext& trace,
                                   Callbacks callbacks) override {
    last_trace = trace;
    auto called = std::make_shared<Worker>();
    called->id = worker.identity().id;
    called->request = std::move(request);
    called->callbacks = std::move(callbacks);
    calls.push_back(called);
    return std::make_shared<Handle>(called);
  }

  std::vector<std::shared_ptr<Worker>> calls;
  telemetry::TraceContext last_trace;

 private:
  class Handle final : public DecodeCall {
   public:
    explicit Handle(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {}
    void Next() override { ++worker_->asked; }
    void Cancel() override { worker_->cancelled = true; }

   private:
    const std::shared_ptr<Worker> worker_;
  };
};

inline baton::fleet::v1::DecodeEvent AcceptedEvent() {
  baton::fleet::v1::DecodeEvent event;
  event.mutable_accepted();
  return event;
}

inline baton::fleet::v1::DecodeEvent TokenEvent(const std::string& text, int id = 7) {
  baton::fleet::v1::DecodeEvent event;
  event.mutable_delta()->set_text(text);
  event.mutable_delta()->set_tokens(1);
  event.mutable_delta()->add_token_ids(id);
  return event;
}

inline baton::fleet::v1::DecodeEvent FinishedEvent() {
  baton::fleet::v1::DecodeEvent event;
  event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  return event;
}

class DriverTest : public ::testing::Test, protected TwoDecodeWorkers {
 protected:
  DriverTest() {
    Up(0);
    OpenTenants({});
    context_.preparer = &preparer_;
    context_.fleets = {{.dispatcher = &dispatcher_, .fleet = &fleet_, .probe = &probe_}};
    context_.decode = &workers_;
    context_.executor = executor_.get();
    context_.grammars = grammars_.get();
    context_.clock = &clock_;
    context_.probe = &probe_;
    context_.live = &live_;
    context_.router_id = "me";
    context_.client_stall = absl::Seconds(30);
  }

  // A call that is left open and its driver would hold one another for ever.
  void TearDown() override { EndCalls(absl::InvalidArgumentError("the test is over")); }

  // Ends the calls that are open, and those that are made for lost ones.
  void EndCalls(const absl::Status& why) {
    for (size_t i = 0; i < workers_.calls.size(); ++i) {
      if (workers_.calls[i]->callbacks.done) workers_.calls[i]->End(why);
    }
  }

  void OpenTenants(const Tenants::Options& options) {
    authenticator_ = nullptr;
    tenants_ = *Tenants::Open(options, [this](const Tenant& tenant) {
      dispatcher_.SetTenant(tenant.id, tenant.label, tenant.limits);
      tenant_ = tenant.id;
    });
    authenticator_ = std::make_unique<Authenticator>(*tenants_, probe_);
    context_.authenticator = authenticator_.get();
  }

  static v1::GenerateRequest Tokens() {
    v1::GenerateRequest request;
    for (int id : {1, 2, 3}) request.mutable_token_ids()->add_ids(id);
    request.mutable_stop()->set_max_tokens(8);
    return request;
  }

  void Start(const v1::GenerateRequest& request, size_t bytes = 100,
             absl::Time deadline = absl::InfiniteFuture()) {
    driver_ = RequestDriver::Create(context_, client_, deadline, "Generate");
    driver_->Start<v1::GenerateRequest>({}, bytes, [request](v1::GenerateRequest* parsed) {
      *parsed = request;
      return absl::OkStatus();
    });
  }

  // The client takes the message that it has been sent.
  void Take(bool ok = true) {
    ASSERT_TRUE(client_->writing);
    client_->writing = false;
    driver_->OnWritten(ok);
  }

  // One choice, accepted, its first token with the client.
  void Run() {
    Start(Tokens());
    workers_.calls.at(0)->Send(AcceptedEvent());
    Take();
    workers_.calls[0]->Send(TokenEvent("a"));
  }

  int64_t Bookings() {
    int64_t all = 0;
    const auto view = fleet_.view();
    for (const auto& worker : view->decode) all += worker->BookedRequests();
    return all;
  }

  FakeClock clock_{absl::UnixEpoch() + absl::Hours(1)};
  static std::shared_ptr<const GrammarCheck> Grammars() {
    return std::make_shared<GrammarCheck>(**text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny"));
  }

  // Waits until what was submitted before is done.
  void Await(Executor& executor) {
    absl::Notification done;
    const auto submit = [&] {
      return executor.TrySubmit({.tenant = tenant_,
                                 .bytes = 0,
                                 .wanted = [] { return true; },
                                 .work =
                                     [&] {
                                       done.Notify();
                                       return true;
                                     },
                                 .drop = [] {}});
    };
    ASSERT_TRUE(baton::Await(submit, "room at the executor"));
    done.WaitForNotification();
  }
  // Holds the grammars' thread until `go_on`.
  void HoldGrammars(absl::Notification& go_on) {
    auto busy = std::make_shared<absl::Notification>();
    ASSERT_TRUE(grammars_->TrySubmit({.tenant = admission::TenantId(99),
                                      .bytes = 0,
                                      .wanted = [] { return true; },
                                      .work =
                                          [busy, &go_on] {
                                            busy->Notify();
                                            go_on.WaitForNotification();
                                            return true;
                                          },
                                      .drop = [] {}}));
    busy->WaitForNotification();
  }
  static v1::GenerateRequest Constrained(const std::string& regex) {
    v1::GenerateRequest request = Tokens();
    request.mutable_constraint()->set_regex(regex);
    return request;
  }

  const ModelRegistry models_ =
      *ModelRegistry::Create({{.name = "m", .context = 1000, .vocabulary = 100, .grammars = Grammars()},
                              {.name = "short", .context = 4, .vocabulary = 100}});
  RequestPreparer preparer_{models_, [] { return uint64_t{5}; }};
  Dispatcher dispatcher_{{}, fleet_, *placement::MakePolicy("least_loaded", 1), clock_, probe_};
  admission::TenantId tenant_;
  std::unique_ptr<Tenants> tenants_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<Executor> executor_ =
      std::make_unique<Executor>(Executor::Options{.threads = 1, .clock = &clock_});
  std::unique_ptr<Executor> grammars_ = std::make_unique<Executor>(Executor::Options{
      .threads = 1, .capacity = 2, .clock = &clock_, .what = "new grammars wait to be compiled"});
  LiveCalls live_{clock_};
  CallContext context_;
  FakeDecodeClient workers_;
  std::shared_ptr<FakeClient> client_ = std::make_shared<FakeClient>();
  std::shared_ptr<RequestDriver> driver_;
};

}  // namespace baton::router
