// The names of calls: in metadata, errors and the audit log.
#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "common/rpc/status.h"
#include "nlohmann/json.hpp"
#include "tests/integration/router/router_fixture.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

using fakes::FakeWorker;
using fakes::Script;
using fakes::Step;
using ::testing::HasSubstr;

// A call that is served has it from the beginning on, though its turn has not come; one that is refused, in
// its only metadata, the trailing ones: with others before them gRPC would not send it again by itself.
TEST_F(RouterTest, ACallHasItsNameBeforeItsTurn) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold()};
  });
  const std::string log = fmt::format("{}/names_audit.{}.jsonl", ::testing::TempDir(), getpid());
  RouterOptions options;
  options.dispatcher.worker_concurrency = 1;
  options.dispatcher.limits.entries = 1;
  options.audit_log = log;
  StartRouter(options);
  const auto in = [](const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  };
  grpc::ClientContext runs, waits, refused;
  const std::string long_name(200, 'n');
  runs.AddMetadata("x-request-id", "my name for it");
  waits.AddMetadata("x-request-id", long_name);
  refused.AddMetadata("x-request-id", "third");
  const auto first = stub_->Generate(&runs, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(first->Read(&response));
  EXPECT_EQ(in(runs.GetServerInitialMetadata(), "baton-request-id"), response.started().request_id());
  EXPECT_EQ(in(runs.GetServerInitialMetadata(), "x-request-id"), "my name for it");

  const auto second = stub_->Generate(&waits, TextRequest());
  second->WaitForInitialMetadata();
  EXPECT_EQ(in(waits.GetServerInitialMetadata(), "baton-request-id").size(), 16u);
  EXPECT_EQ(in(waits.GetServerInitialMetadata(), "x-request-id"), long_name.substr(0, 128));
  EXPECT_EQ(Metric("baton_router_queue_requests "), 1);

  const Answer third = ReadAll(&refused, stub_->Generate(&refused, TextRequest()).get());
  EXPECT_TRUE(absl::IsResourceExhausted(third.status)) << third.status;
  const std::string id = rpc::RequestIdOf(third.status);
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(in(refused.GetServerTrailingMetadata(), "baton-request-id"), id);
  for (grpc::ClientContext* context : {&runs, &waits}) context->TryCancel();
  first->Finish();
  second->Finish();
  router_->Stop();
  router_ = nullptr;  // which writes what is left of the log
  std::ifstream file(log);
  std::map<std::string, std::string> names;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    names[record["request_id"]] = record.value("client_request_id", "");
  }
  EXPECT_EQ(names[response.started().request_id()], "my name for it");
  EXPECT_EQ(names[id], "third");
  EXPECT_EQ(names.size(), 3u);
}

// gRPC's own retries send a call again only if no headers have come before its end.
TEST_F(RouterTest, GrpcSendsARefusedCallAgainByItself) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold()};
  });
  RouterOptions options;
  options.dispatcher.worker_concurrency = 1;
  options.dispatcher.limits.entries = 1;
  StartRouter(options);
  grpc::ClientContext runs, waits, refused;
  const auto first = stub_->Generate(&runs, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(first->Read(&response));
  const auto second = stub_->Generate(&waits, TextRequest());
  second->WaitForInitialMetadata();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetServiceConfigJSON(R"({"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,
      "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
      "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]})");
  const auto channel =
      grpc::CreateCustomChannel(router_->address(), grpc::InsecureChannelCredentials(), arguments);
  const Answer answer =
      ReadAll(&refused, v1::Inference::NewStub(channel)->Generate(&refused, TextRequest()).get());
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status)) << answer.status;
  EXPECT_EQ(Metric("baton_router_tenant_refused_total{reason=\"total_queue\""), 3);
  for (grpc::ClientContext* context : {&runs, &waits}) context->TryCancel();
  first->Finish();
  second->Finish();
}

TEST_F(RouterTest, ACallWithoutAWorkerHasItsNameToo) {
  AddWorker();
  StartRouter();
  const auto id_in = [](const grpc::ClientContext& context) {
    const auto found = context.GetServerInitialMetadata().find("baton-request-id");
    return found == context.GetServerInitialMetadata().end()
               ? ""
               : std::string(found->second.data(), found->second.size());
  };
  grpc::ClientContext listing, counting;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&listing, {}, &models).ok());
  EXPECT_EQ(id_in(listing).size(), 16u);
  v1::CountTokensRequest nothing;
  v1::CountTokensResponse count;
  const absl::Status refused = rpc::FromGrpc(stub_->CountTokens(&counting, nothing, &count));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(rpc::RequestIdOf(refused).size(), 16u);
  EXPECT_EQ(rpc::FieldOf(refused), "request");
}

}  // namespace
}  // namespace baton::router
