// Services that every server offers besides its own, and the router with a whole fleet behind it.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <set>

#include "common/rpc/channel.h"
#include "tests/e2e/fleet.h"
#include "tests/e2e/http_get.h"

namespace baton::e2e {
namespace {

using testing::HasSubstr;

// A unary call by name with raw bytes: what a probe without generated code does.
std::string RawCall(const std::string& address, const std::string& method, const std::string& request) {
  grpc::GenericStub stub(rpc::MakeChannel(address));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  grpc::Slice slice(request);
  grpc::ByteBuffer message(&slice, 1), response;
  const auto call = stub.PrepareUnaryCall(&context, method, message, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (!status.ok()) return status.error_message();
  grpc::Slice whole;
  if (!response.DumpToSingleSlice(&whole).ok()) return "";
  return std::string(reinterpret_cast<const char*>(whole.begin()), whole.size());
}

// HasSubstr would print the whole page.
testing::AssertionResult Contains(const std::string& page, const std::string& text) {
  if (page.find(text) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the page does not contain " << text;
}

TEST(ServiceTest, EveryServerOffersHealthReflectionAndMetrics) {
  Fleet fleet;
  for (Process* process : {&fleet.router(), &fleet.prefill(), &fleet.decode()}) {
    // HealthCheckResponse.status = SERVING is field 1, value 1.
    EXPECT_EQ(RawCall(process->grpc(), "/grpc.health.v1.Health/Check", ""), std::string("\x08\x01"));
    // ServerReflectionRequest.list_services is field 7.
    EXPECT_THAT(RawCall(process->grpc(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                        std::string("\x3a\x01*")),
                HasSubstr("baton."));
    EXPECT_TRUE(Contains(HttpGet(process->metrics(), "/metrics"), "# TYPE baton_"));
  }
}

TEST(ServiceTest, MetricsTellWhatHappened) {
  // A policy that always takes a prefill worker: by cost an idle decode worker may prefill itself.
  Fleet fleet({.router_flags = {"--policy", "round_robin"}});
  std::vector<int32_t> prompt;
  for (int i = 0; i < 200; ++i) prompt.push_back(100 + i);
  ASSERT_TRUE(fleet.Generate(TokenRequest(prompt, 20)).status.ok());
  const std::string router = HttpGet(fleet.router().metrics(), "/metrics");
  for (const char* name : {"_ttft_seconds_count", "_ttft_phase_seconds", "_tpot_seconds", "_itl_seconds",
                           "_e2e_seconds", "_requests_total"}) {
    EXPECT_TRUE(Contains(router, name));
  }
  const std::string prefill = HttpGet(fleet.prefill().metrics(), "/metrics");
  EXPECT_TRUE(Contains(prefill, "baton_prefill_tokens_total 200"));
  EXPECT_TRUE(Contains(prefill, "baton_kv_shipped_bytes_total{link=\"host\"}"));
  const std::string decode = HttpGet(fleet.decode().metrics(), "/metrics");
  EXPECT_TRUE(Contains(decode, "baton_output_tokens_total 20"));
  EXPECT_TRUE(Contains(decode, "baton_kv_received_blocks_total{link=\"host\"} 13"));
  EXPECT_TRUE(Contains(decode, "baton_prefix_query_tokens_total 200"));
}

TEST(ServiceTest, ChatTokenizeAndModelsThroughTheRouter) {
  Fleet fleet({.prefill = 2, .decode = 2});
  v1::TokenizeRequest tokenize;
  tokenize.mutable_generate()->set_text("The quick brown fox");
  v1::TokenizeResponse tokens;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(fleet.stub().Tokenize(&context, tokenize, &tokens).ok());
  }
  EXPECT_GT(tokens.token_ids_size(), 2);
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse text;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(fleet.stub().Detokenize(&context, detokenize, &text).ok());
  }
  EXPECT_THAT(text.text(), HasSubstr("The quick brown fox"));
  // Text and its ids are the same request.
  v1::GenerateRequest by_ids = TokenRequest({tokens.token_ids().begin(), tokens.token_ids().end()}, 6);
  v1::GenerateRequest by_text = by_ids;
  by_text.set_text("The quick brown fox");
  EXPECT_EQ(fleet.Generate(by_text).digests, fleet.Generate(by_ids).digests);
}

TEST(ServiceTest, SeveralChoicesAreSeveralDraws) {
  Fleet fleet;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 60; ++i) prompt.push_back(100 + i * 3);
  v1::GenerateRequest request = TokenRequest(prompt, 12);
  request.mutable_sampling()->set_temperature(1.5f);
  request.mutable_sampling()->set_seed(11);
  request.mutable_options()->set_n(3);
  std::map<uint32_t, std::vector<int32_t>> choices;
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, request);
  for (v1::GenerateResponse response; reader->Read(&response);) {
    for (int32_t id : response.delta().token_ids()) choices[response.delta().choice()].push_back(id);
  }
  ASSERT_TRUE(reader->Finish().ok());
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_EQ(std::set<std::vector<int32_t>>({choices[0], choices[1], choices[2]}).size(), 3u);
  // Choice i is what seed + i gives alone.
  request.mutable_options()->set_n(1);
  request.mutable_sampling()->set_seed(13);
  EXPECT_EQ(fleet.Generate(request).tokens, choices[2]);
  fleet.ExpectNothingHeld();
}

TEST(ServiceTest, StopStringsAndLogprobsComeThroughTheRelay) {
  Fleet fleet;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 60; ++i) prompt.push_back(100 + i * 5);
  v1::GenerateRequest request = TokenRequest(prompt, 40);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(3);
  request.mutable_output()->set_logprobs(true);
  request.mutable_output()->set_top_logprobs(2);
  const Answer whole = fleet.Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_EQ(whole.end().reason(), v1::FINISH_REASON_LENGTH);
  ASSERT_GT(whole.text.size(), 20u);
  const std::string stop = whole.text.substr(whole.text.size() / 2, 3);
  request.mutable_stop()->add_stop(stop);
  const Answer stopped = fleet.Generate(request);
  EXPECT_EQ(stopped.end().reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(stopped.end().stop_match(), stop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(stop)));
}

}  // namespace
}  // namespace baton::e2e
