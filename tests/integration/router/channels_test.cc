// How clients' channels and a router get along: connections that grow old, service configs, compressed
// requests, health by model, load reports.
#include <grpc/compression.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/sync_stream.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "tests/integration/router/router_fixture.h"
#include "tests/integration/router/wire_call.h"
#include "tests/patience.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace baton::router {
namespace {

using fakes::FakeWorker;
using fakes::Script;
using fakes::Step;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::health::v1::HealthListRequest;
using grpc::health::v1::HealthListResponse;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using xds::data::orca::v3::OrcaLoadReport;

std::chrono::system_clock::time_point Soon() {
  return std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60));
}

TEST_F(RouterTest, AnOldConnectionTakesNoNewCallAndItsAnswerGoesOn) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Token(6, "b"), Step::Finish()};
  });
  RouterOptions options;
  options.max_connection_age = absl::Milliseconds(200);
  StartRouter(options);
  grpc::ClientContext running;
  const auto reader = stub_->Generate(&running, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  // Each time the channel has lost its connection to age, and has made another.
  for (int connection = 0; connection < 3; ++connection) {
    SCOPED_TRACE(connection);
    ASSERT_TRUE(channel_->WaitForStateChange(GRPC_CHANNEL_READY, Soon())) << "a connection that never ages";
    grpc::ClientContext context;
    context.set_deadline(Soon());
    context.set_wait_for_ready(true);
    v1::ListModelsResponse models;
    const grpc::Status status = stub_->ListModels(&context, {}, &models);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  decode->Release();
  int messages = 0;
  while (reader->Read(&response)) ++messages;
  EXPECT_GT(messages, 0);
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

class RouterGzipTest : public RouterTest {
 protected:
  void SetUp() override {
    AddWorker();
    StartRouter();
  }

  // A request whose message gRPC's client compresses.
  Answer GenerateCompressed(const v1::GenerateRequest& request,
                            grpc_compression_algorithm algorithm = GRPC_COMPRESS_GZIP) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    context.set_compression_algorithm(algorithm);
    return ReadAll(&context, stub_->Generate(&context, request).get());
  }
};

TEST_F(RouterGzipTest, ACompressedRequestIsTheSameRequest) {
  // Short enough to be parsed where it comes in, and longer than that.
  for (const int words : {200, 2'000}) {
    SCOPED_TRACE(words);
    v1::GenerateRequest request;
    for (int i = 0; i < words; ++i) request.mutable_token_ids()->add_ids(i);
    const Answer plain = Generate(request), compressed = GenerateCompressed(request);
    ASSERT_TRUE(plain.status.ok()) << plain.status;
    ASSERT_TRUE(compressed.status.ok()) << compressed.status;
    EXPECT_EQ(compressed.text(), plain.text());
    const auto asked = workers_[0]->requests();
    ASSERT_GE(asked.size(), 2u);
    EXPECT_EQ(asked.back().token_ids_size(), words);
    EXPECT_TRUE(std::ranges::equal(asked.back().token_ids(), asked[asked.size() - 2].token_ids()));
  }
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::TokenizeRequest tokenize;
  tokenize.mutable_generate()->set_text(std::string(1'000, 'x'));
  v1::TokenizeResponse tokens;
  const grpc::Status status = stub_->Tokenize(&context, tokenize, &tokens);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(tokens.token_ids_size(), 0);
}

TEST_F(RouterGzipTest, AMessageOfMoreThanSixteenMegabytesOnceInflatedIsRefused) {
  const Answer answer = GenerateCompressed(TextRequest(std::string(64 << 20, 'x')));
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
  EXPECT_EQ(rpc::ReasonOf(answer.status), "REQUEST_TOO_LARGE");
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("once it is inflated, and at most 16777216"));
  EXPECT_TRUE(GenerateCompressed(TextRequest()).status.ok());
  // A method that is answered on gRPC's thread inflates less.
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::ModerateRequest moderate;
  moderate.add_texts(std::string(2 << 20, 'x'));
  v1::ModerateResponse verdict;
  const absl::Status status = rpc::FromGrpc(stub_->Moderate(&context, moderate, &verdict));
  EXPECT_EQ(rpc::ReasonOf(status), "REQUEST_TOO_LARGE") << status;
}

TEST_F(RouterGzipTest, DataThatAreNoGzipAreRefusedAndAnswersStayPlain) {
  const std::string method = "/baton.v1.Inference/Generate";
  const std::string plain = TextRequest().SerializeAsString();
  const WireCall answer =
      WireCall::Make(router_->address(), method, WireCall::Framed(plain), {{"grpc-encoding", "gzip"}});
  EXPECT_EQ(answer.fields.at("grpc-status"), "0") << "a message that is not marked as compressed";
  EXPECT_EQ(answer.fields.count("grpc-encoding"), 0u);
  EXPECT_THAT(answer.fields.at("grpc-accept-encoding"), HasSubstr("gzip"));
  for (const std::string& data :
       {std::string("\x1f\x8b\x08 and no more of it than that"), std::string("none")}) {
    const WireCall refused =
        WireCall::Make(router_->address(), method, WireCall::Framed(data, true), {{"grpc-encoding", "gzip"}});
    EXPECT_EQ(refused.fields.at("grpc-status"), "3") << data;
    google::rpc::Status details;
    ASSERT_TRUE(details.ParseFromString(refused.Binary("grpc-status-details-bin")));
    EXPECT_THAT(details.ShortDebugString(), HasSubstr("INVALID_REQUEST"));
  }
}

TEST_F(RouterGzipTest, AnotherEncodingIsRefusedByName) {
  const Answer answer = GenerateCompressed(TextRequest(std::string(1'000, 'x')), GRPC_COMPRESS_DEFLATE);
  EXPECT_TRUE(absl::IsUnimplemented(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("deflate"));
}

// A client of grpc.health.v1 that has no stubs.
class HealthClient {
 public:
  explicit HealthClient(const std::string& address)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        check_("/grpc.health.v1.Health/Check", grpc::internal::RpcMethod::NORMAL_RPC, channel_),
        list_("/grpc.health.v1.Health/List", grpc::internal::RpcMethod::NORMAL_RPC, channel_) {}

  // "SERVING", "NOT_SERVING", or the name of the code of a failed call.
  std::string Check(const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    const grpc::Status status = Call(check_, request, &response);
    if (!status.ok()) return absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
    return Name(response.status());
  }
  std::map<std::string, std::string> List() {
    HealthListResponse response;
    const grpc::Status status = Call(list_, HealthListRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, std::string> names;
    for (const auto& [name, one] : response.statuses()) names[name] = Name(one.status());
    return names;
  }
  // Calls that read what Watch says, until it is `said`.
  void AwaitWatched(const std::string& service, const std::string& said) {
    const grpc::internal::RpcMethod watch("/grpc.health.v1.Health/Watch",
                                          grpc::internal::RpcMethod::SERVER_STREAMING, channel_);
    grpc::ClientContext context;
    context.set_deadline(Soon());
    HealthCheckRequest request;
    request.set_service(service);
    const std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader(
        grpc::internal::ClientReaderFactory<HealthCheckResponse>::Create(channel_.get(), watch, &context,
                                                                         request));
    HealthCheckResponse response;
    while (reader->Read(&response)) {
      if (Name(response.status()) == said) break;
    }
    EXPECT_EQ(Name(response.status()), said);
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    reader->Finish();
  }

 private:
  static std::string Name(HealthCheckResponse::ServingStatus status) {
    return HealthCheckResponse::ServingStatus_Name(status);
  }
  template <typename Request, typename Response>
  grpc::Status Call(const grpc::internal::RpcMethod& method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    return grpc::internal::BlockingUnaryCall(channel_.get(), method, &context, request, response);
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const grpc::internal::RpcMethod check_, list_;
};

class RouterHealthTest : public RouterTest {};

TEST_F(RouterHealthTest, TellsOfEachModel) {
  FakeWorker* const one = AddWorker();
  FakeWorker* const two = AddWorker();
  const std::string folder = BATON_SOURCE_DIR "/models/baton-tiny";
  RouterOptions options;
  options.health_listen = "127.0.0.1:0";
  options.dispatcher.max_wait = absl::Milliseconds(100);
  options.models = {{.folder = folder, .name = "first", .decode = {one->address()}},
                    {.folder = folder, .name = "second", .decode = {two->address()}},
                    {.folder = folder, .name = "hidden", .tenants = {"a"}, .decode = {two->address()}}};
  StartRouter(options);
  HealthClient open(router_->address());
  open.AwaitWatched("baton.v1.Inference/first", "SERVING");
  open.AwaitWatched("baton.v1.Inference/second", "SERVING");
  EXPECT_EQ(open.Check("baton.v1.Inference/third"), "NOT_FOUND");
  EXPECT_EQ(open.Check("baton.v1.Inference/hidden"), "NOT_FOUND");
  EXPECT_EQ(open.Check("first"), "NOT_FOUND");
  const std::map<std::string, std::string> all = {{"", "SERVING"},
                                                  {"live", "SERVING"},
                                                  {"baton.v1.Inference", "SERVING"},
                                                  {"baton.v1.Inference/first", "SERVING"},
                                                  {"baton.v1.Inference/second", "SERVING"}};
  EXPECT_THAT(open.List(), IsSupersetOf(all));
  EXPECT_EQ(open.List().count("baton.v1.Inference/hidden"), 0u);
  HealthClient kubelet(router_->health_address());
  EXPECT_EQ(kubelet.Check("baton.v1.Inference/hidden"), "SERVING");
  EXPECT_EQ(kubelet.List().count("baton.v1.Inference/hidden"), 1u);

  // One that has gone is waited for a while.
  const std::string address = two->address();
  two->Kill();
  open.AwaitWatched("baton.v1.Inference/second", "NOT_SERVING");
  kubelet.AwaitWatched("baton.v1.Inference/hidden", "NOT_SERVING");
  EXPECT_EQ(open.Check("baton.v1.Inference/first"), "SERVING");
  EXPECT_EQ(open.Check(""), "SERVING");
  EXPECT_EQ(open.List().at("baton.v1.Inference/second"), "NOT_SERVING");
  AddWorker({.listen = address});
  open.AwaitWatched("baton.v1.Inference/second", "SERVING");
}

// With examples/service_config.json, as it stands there.
class RouterServiceConfigTest : public RouterTest {
 protected:
  std::unique_ptr<v1::Inference::Stub> Connect(const std::string& target) {
    std::ifstream file(BATON_SOURCE_DIR "/examples/service_config.json");
    std::ostringstream config;
    config << file.rdbuf();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetServiceConfigJSON(config.str());
    return v1::Inference::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
  }
  Answer Ask(v1::Inference::Stub& stub) {
    grpc::ClientContext context;
    context.set_deadline(Soon());
    return ReadAll(&context, stub.Generate(&context, TextRequest()).get());
  }
};

TEST_F(RouterServiceConfigTest, ARefusedCallIsSentAgain) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold(), Step::Token(5, "a"), Step::Finish()};
  });
  RouterOptions options;
  options.dispatcher.worker_concurrency = 1;
  options.dispatcher.limits.entries = 1;
  StartRouter(options);
  grpc::ClientContext runs, waits;
  const auto first = stub_->Generate(&runs, TextRequest());
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  const auto second = stub_->Generate(&waits, TextRequest());
  second->WaitForInitialMetadata();
  const std::string refused = "baton_router_tenant_refused_total{reason=\"total_queue\"";
  EXPECT_TRUE(absl::IsResourceExhausted(Generate(TextRequest()).status));
  EXPECT_EQ(Metric(refused), 1) << "without the service config";
  EXPECT_TRUE(absl::IsResourceExhausted(Ask(*Connect(router_->address())).status));
  EXPECT_EQ(Metric(refused), 1 + 4) << "maxAttempts";
  for (grpc::ClientContext* context : {&runs, &waits}) context->TryCancel();
  first->Finish();
  second->Finish();
}

TEST_F(RouterServiceConfigTest, CallsSpreadOverTheRoutersThatAreReady) {
  AddWorker();
  StartRouter();
  auto worker = FakeWorker::Start({.id = "other", .incarnation = 7});
  ASSERT_TRUE(worker.ok()) << worker.status();
  (*worker)->ReportDraining(true);
  RouterOptions options;
  options.models = {{.folder = BATON_SOURCE_DIR "/models/baton-tiny"}};
  options.decode = {(*worker)->address()};
  const auto other = Router::Start(options);
  ASSERT_TRUE(other.ok()) << other.status();
  const auto at_the_other = [&] { return (*worker)->counts().calls; };

  const auto stub = Connect(absl::StrCat("ipv4:", router_->address(), ",", (*other)->address()));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Ask(*stub).status.ok()) << i;
  EXPECT_EQ(at_the_other(), 0) << "its router is not ready";
  EXPECT_DOUBLE_EQ(Metric("baton_router_requests_total{outcome=\"OK\"}"), 8);

  (*worker)->ReportDraining(false);
  EXPECT_TRUE(Await(
      [&] {
        EXPECT_TRUE(Ask(*stub).status.ok());
        return at_the_other() > 0;
      },
      "a call at the router that became ready"));
}

// gRPC's own timer does not run (ServerOptions::ends_calls): a client that does nothing itself at its
// deadline hears from the router all the same, once.
TEST_F(RouterTest, ARouterEndsCallsAtTheirDeadlines) {
  FakeWorker* const decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) {
    return Script{Step::Accept(), Step::Token(5, "a"), Step::Hold()};
  });
  StartRouter();
  v1::GenerateUnaryRequest whole;
  *whole.mutable_generate() = TextRequest();
  const std::pair<std::string, std::string> calls[] = {{"Generate", TextRequest().SerializeAsString()},
                                                       {"GenerateUnary", whole.SerializeAsString()}};
  for (const auto& [method, request] : calls) {
    for (const std::string timeout : {"1m", "300m"}) {
      const WireCall answer = WireCall::Make(router_->address(), "/baton.v1.Inference/" + method,
                                             WireCall::Framed(request), {{"grpc-timeout", timeout}});
      EXPECT_EQ(answer.fields.at("grpc-status"), "4") << method << ", " << timeout;
      EXPECT_LE(answer.blocks, 2) << "trailers, once";
    }
  }
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.running == 0; }));
}

// gRPC's library keeps the trailer from its callers. A report is of a second, so the first calls have none.
TEST_F(RouterTest, AnswersTellTheRoutersLoadAndRefusalsDoNot) {
  FakeWorker* decode = AddWorker();
  StartRouter();
  baton::fleet::v1::Load half;
  half.set_total_blocks(4096);
  half.set_free_blocks(2048);
  decode->Report(half);
  const auto call = [&](const std::string& method, const google::protobuf::Message& request) {
    return WireCall::Make(router_->address(), "/baton.v1.Inference/" + method,
                          WireCall::Framed(request.SerializeAsString()));
  };
  OrcaLoadReport report;
  EXPECT_TRUE(Await(
      [&] {
        const WireCall answer = call("Generate", TextRequest());
        EXPECT_EQ(answer.fields.at("grpc-status"), "0");
        EXPECT_TRUE(report.ParseFromString(answer.Binary("endpoint-load-metrics-bin")));
        return report.named_metrics().count("kv_used") > 0 && report.named_metrics().at("kv_used") == 0.5;
      },
      [&] { return "half of the blocks in use: " + report.ShortDebugString(); }));
  EXPECT_GT(report.rps_fractional(), 0);
  EXPECT_GT(report.cpu_utilization(), 0);
  EXPECT_GE(report.application_utilization(), report.cpu_utilization());
  EXPECT_DOUBLE_EQ(report.eps(), 0);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("queue"), 0);

  v1::GenerateUnaryRequest whole;
  *whole.mutable_generate() = TextRequest();
  EXPECT_EQ(call("GenerateUnary", whole).fields.count("endpoint-load-metrics-bin"), 1u);
  const WireCall refused = call("Generate", v1::GenerateRequest());
  EXPECT_EQ(refused.fields.at("grpc-status"), "3");
  EXPECT_EQ(refused.fields.count("endpoint-load-metrics-bin"), 0u);
  EXPECT_EQ(refused.blocks, 1) << "trailers alone";
}

}  // namespace
}  // namespace baton::router
