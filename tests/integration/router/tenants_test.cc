// Keys, limits and fairness through the public endpoint.
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_replace.h"
#include "common/rpc/status.h"
#include "router/tenancy/api_key.h"
#include "tests/integration/router/router_fixture.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

using fakes::FakeWorker;
using fakes::Script;
using fakes::Step;
using ::testing::HasSubstr;

class RouterTenantsTest : public RouterTest {
 protected:
  RouterTenantsTest() : file_(::testing::TempDir() + "/tenants_" + a_.id + ".json") {}
  ~RouterTenantsTest() override { std::filesystem::remove(file_); }

  void Write(const std::string& text) {
    std::ofstream(file_ + ".new") << absl::StrReplaceAll(
        text, {{"$A", "\"keys\": [{\"id\": \"" + a_.id + "\", \"sha256\": \"" + a_.sha256 + "\"}]"},
               {"$B", "\"keys\": [{\"id\": \"" + b_.id + "\", \"sha256\": \"" + b_.sha256 + "\"}]"}});
    std::filesystem::rename(file_ + ".new", file_);
  }
  void StartWithTenants(const std::string& text) {
    Write(text);
    RouterOptions options;
    options.tenants.file = file_;
    StartRouter(options);
  }
  Answer GenerateWith(const std::string& header, const std::string& value,
                      v1::GenerateRequest request = TextRequest()) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    if (!header.empty()) context.AddMetadata(header, value);
    return ReadAll(&context, stub_->Generate(&context, request).get());
  }
  Answer GenerateAs(const NewApiKey& key, const v1::GenerateRequest& request = TextRequest()) {
    return GenerateWith("authorization", "Bearer " + key.key, request);
  }

  const NewApiKey a_ = MakeApiKey();
  const NewApiKey b_ = MakeApiKey();
  const std::string file_;
};

TEST_F(RouterTenantsTest, OnlyKnownKeysComeInAndStrangersReachNoWorker) {
  FakeWorker* decode = AddWorker();
  StartWithTenants(R"({"tenants": [{"name": "a", $A}, {"name": "b", $B}]})");
  EXPECT_TRUE(GenerateAs(a_).status.ok());
  EXPECT_TRUE(GenerateWith("x-api-key", b_.key).status.ok());
  EXPECT_TRUE(GenerateWith("authorization", "bearer " + b_.key).status.ok());
  const Answer none = GenerateWith("", "");
  EXPECT_TRUE(absl::IsUnauthenticated(none.status)) << none.status;
  EXPECT_THAT(std::string(none.status.message()), HasSubstr("authorization: Bearer"));
  EXPECT_EQ(rpc::ReasonOf(none.status), "KEY_MISSING");
  EXPECT_EQ(rpc::RequestIdOf(none.status).size(), 16u);
  const absl::Status unknown = GenerateAs(MakeApiKey()).status;
  EXPECT_TRUE(absl::IsUnauthenticated(unknown)) << unknown;
  EXPECT_EQ(rpc::ReasonOf(unknown), "KEY_UNKNOWN");
  EXPECT_TRUE(absl::IsUnauthenticated(GenerateWith("authorization", a_.key).status));
  EXPECT_EQ(decode->counts().calls, 3);
  EXPECT_EQ(Metric("baton_router_denied_total{reason=\"no_key\"}"), 2);
  EXPECT_EQ(Metric("baton_router_denied_total{reason=\"unknown_key\"}"), 1);
  EXPECT_EQ(Metric("baton_router_tenant_admitted_total{tenant=\"a\"}"), 1);
  EXPECT_EQ(Metric("baton_router_tenant_admitted_total{tenant=\"b\"}"), 2);
  EXPECT_EQ(Metric("baton_router_tenant_output_tokens_total{tenant=\"b\"}"), 4);

  grpc::ClientContext context;
  v1::TokenizeRequest tokenize;
  tokenize.mutable_generate()->set_text("x");
  v1::TokenizeResponse tokens;
  const absl::Status untokenized = rpc::FromGrpc(stub_->Tokenize(&context, tokenize, &tokens));
  EXPECT_TRUE(absl::IsUnauthenticated(untokenized)) << untokenized;
  EXPECT_EQ(rpc::ReasonOf(untokenized), "KEY_MISSING");
  grpc::ClientContext models_context;
  v1::ListModelsResponse models;
  EXPECT_EQ(stub_->ListModels(&models_context, {}, &models).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(RouterTenantsTest, EachTenantsSaltIsItsOwn) {
  FakeWorker* decode = AddWorker();
  StartWithTenants(R"({"tenants": [{"name": "a", $A}, {"name": "b", $B}]})");
  ASSERT_TRUE(GenerateAs(a_).status.ok());
  ASSERT_TRUE(GenerateAs(b_).status.ok());
  ASSERT_TRUE(GenerateAs(a_).status.ok());
  const auto requests = decode->requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_NE(requests[0].salt(), requests[1].salt());
  EXPECT_EQ(requests[0].salt(), requests[2].salt());
}

TEST_F(RouterTenantsTest, ARevokedKeyIsRefusedWithoutARestartAndWhatRunsGoesOn) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) {
    return Script{Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Token(6, "b"), Step::Finish()};
  });
  StartWithTenants(R"({"tenants": [{"name": "a", $A}, {"name": "b", $B}]})");
  Answer running;
  std::thread client([&] { running = GenerateAs(a_); });
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  Write(R"({"tenants": [{"name": "b", $B}]})");
  absl::Status refused;
  const auto is_revoked = [&] {
    grpc::ClientContext context;
    context.AddMetadata("x-api-key", a_.key);
    v1::ListModelsResponse models;
    refused = rpc::FromGrpc(stub_->ListModels(&context, {}, &models));
    return absl::IsUnauthenticated(refused);
  };
  Await(is_revoked, [&] { return "a refusal of the key, and not " + refused.ToString(); });
  decode->Release();
  client.join();
  EXPECT_TRUE(running.status.ok()) << running.status;
  EXPECT_EQ(running.text(), "ab");
}

TEST_F(RouterTenantsTest, RatesRefuseWithTheLimitAndADelay) {
  AddWorker();
  StartWithTenants(R"({"tenants": [{"name": "a", $A, "requests_per_minute": 2},
                                   {"name": "b", $B, "prompt_tokens_per_minute": 5}]})");
  EXPECT_TRUE(GenerateAs(a_).status.ok());
  EXPECT_TRUE(GenerateAs(a_).status.ok());
  const Answer third = GenerateAs(a_);
  EXPECT_TRUE(absl::IsResourceExhausted(third.status)) << third.status;
  EXPECT_THAT(std::string(third.status.message()), HasSubstr("2 requests per minute"));
  EXPECT_EQ(rpc::ReasonOf(third.status), "LIMIT_EXCEEDED");
  EXPECT_EQ(rpc::ReasonMetadata(third.status, "limit"), "request_rate");
  EXPECT_EQ(rpc::QuotaOf(third.status), "tenant");
  const auto delay = rpc::RetryDelay(third.status);
  ASSERT_TRUE(delay.has_value());
  EXPECT_GT(*delay, absl::ZeroDuration());
  EXPECT_LE(*delay, absl::Seconds(30));
  EXPECT_EQ(Metric("baton_router_tenant_refused_total{reason=\"request_rate\",tenant=\"a\"}"), 1);

  v1::GenerateRequest large;
  for (int i = 0; i < 6; ++i) large.mutable_token_ids()->add_ids(10);
  const Answer never = GenerateAs(b_, large);
  EXPECT_TRUE(absl::IsFailedPrecondition(never.status)) << never.status;
  EXPECT_EQ(rpc::ReasonOf(never.status), "LIMIT_EXCEEDED");
}

TEST_F(RouterTenantsTest, PrioritiesBeyondTheTenantsAreDenied) {
  AddWorker();
  StartWithTenants(R"({"tenants": [{"name": "a", $A, "best_priority": 0}]})");
  v1::GenerateRequest request = TextRequest();
  request.mutable_options()->set_priority(-1);
  EXPECT_TRUE(absl::IsPermissionDenied(GenerateAs(a_, request).status));
  request.mutable_options()->set_priority(0);
  EXPECT_TRUE(GenerateAs(a_, request).status.ok());
}

TEST_F(RouterTenantsTest, ConcurrencyMakesATenantWaitAndNobodyElse) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) {
    return Script{Step::Accept(), Step::Hold(), Step::Token(5, "a"), Step::Finish()};
  });
  StartWithTenants(R"({"tenants": [{"name": "a", $A, "concurrency": 1}, {"name": "b", $B}]})");
  std::vector<Answer> answers(3);
  std::vector<std::thread> clients;
  clients.emplace_back([&] { answers[0] = GenerateAs(a_); });
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  clients.emplace_back([&] { answers[1] = GenerateAs(a_); });
  EXPECT_TRUE(AwaitMetric("baton_router_tenant_queue_requests{tenant=\"a\"}", 1));
  clients.emplace_back([&] { answers[2] = GenerateAs(b_); });
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 2; }));
  EXPECT_EQ(Metric("baton_router_tenant_queue_requests{tenant=\"a\"}"), 1);
  decode->Release();
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.calls == 3; }));
  const auto all_released = [&] {
    if (decode->counts().running == 0) return true;
    decode->Release();
    return false;
  };
  Await(all_released, "the end of what the worker runs");
  for (std::thread& client : clients) client.join();
  for (const Answer& answer : answers) EXPECT_TRUE(answer.status.ok()) << answer.status;
}

}  // namespace
}  // namespace baton::router
