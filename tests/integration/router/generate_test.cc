// The good ways: text, ids, chat, choices, cancel, deadline, a slow client, the small calls.
#include <fmt/format.h>
#include <grpc/support/time.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <set>
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

TEST_F(RouterTest, CompletesText) {
  FakeWorker* decode = AddWorker({.id = "d"});
  AddWorker({.id = "p", .role = baton::fleet::v1::ROLE_PREFILL});
  StartRouter({.policy = "least_loaded"});  // which names a prefill worker for the shortest prompt too
  const Answer answer = Generate(TextRequest("Hello there"));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.started.size(), 1u);
  EXPECT_EQ(answer.started[0].model(), "baton-tiny");
  EXPECT_EQ(answer.text(), "ab");
  ASSERT_EQ(answer.finished.size(), 1u);
  EXPECT_EQ(answer.finished[0].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(answer.finished[0].relay().decode_worker(), "d");
  const v1::Timing& timing = answer.finished[0].timing();
  EXPECT_GT(timing.ttft_seconds(), 0);
  EXPECT_EQ(timing.ttft_seconds(), timing.admit_seconds() + timing.decode_queue_seconds() +
                                       timing.prefill_queue_seconds() + timing.prefill_seconds() +
                                       timing.transfer_seconds() + timing.first_token_seconds());
  EXPECT_GE(timing.e2e_seconds(), timing.ttft_seconds());

  ASSERT_EQ(decode->requests().size(), 1u);
  const baton::fleet::v1::DecodeRequest request = decode->requests()[0];
  EXPECT_EQ(request.token_ids_size(), static_cast<int>(answer.started[0].prompt_tokens()));
  EXPECT_EQ(request.token_ids(0), 1) << "the tokenizer's BOS";
  ASSERT_EQ(request.prefill_size(), 1);
  EXPECT_EQ(request.prefill(0).worker(), "p");
  EXPECT_FALSE(request.salt().empty());
  // generation_config.json of the model, sent explicitly.
  EXPECT_FLOAT_EQ(request.sampling().temperature(), 0.3f);
  EXPECT_FLOAT_EQ(request.sampling().top_p(), 0.95f);
  EXPECT_EQ(request.sampling().top_k(), 20);
  EXPECT_EQ(request.stop().max_tokens(), 256u);
  EXPECT_EQ(request.sampling().seed(), answer.started[0].seed());
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"OK\"}"), 1);
  EXPECT_EQ(Metric("baton_router_ttft_seconds_count"), 1);
  EXPECT_EQ(Metric("baton_ttft_phase_seconds_count{phase=\"admit\"}"), 1);
  EXPECT_EQ(Metric("baton_router_answer_tokens_total"), 2);
}

TEST_F(RouterTest, CompletesTokenIds) {
  FakeWorker* decode = AddWorker();
  StartRouter();
  v1::GenerateRequest request;
  for (int32_t id : {1, 40, 41}) request.mutable_token_ids()->add_ids(id);
  request.mutable_output()->set_token_ids(true);
  request.mutable_sampling()->set_seed(7);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.started[0].seed(), 7u);
  ASSERT_EQ(answer.deltas.size(), 2u);
  EXPECT_EQ(answer.deltas[0].token_ids(0), 5);
  EXPECT_THAT(decode->requests()[0].token_ids(), ::testing::ElementsAre(1, 40, 41));
  EXPECT_EQ(decode->requests()[0].prefill_size(), 0);
}

TEST_F(RouterTest, ChatsThroughTheTemplate) {
  FakeWorker* decode = AddWorker();
  StartRouter();
  v1::ChatRequest chat;
  v1::Message* message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("Hello");
  const Answer answer = Chat(chat);
  ASSERT_TRUE(answer.status.ok()) << answer.status;

  // The caller who tokenizes first gets the same prompt.
  grpc::ClientContext context;
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_chat() = chat;
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub_->Tokenize(&context, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.text(), "<|begin|><|user|>Hello<|end|><|assistant|>");
  EXPECT_THAT(decode->requests()[0].token_ids(), ::testing::ElementsAreArray(tokens.token_ids()));
}

TEST_F(RouterTest, TokenizesAndDetokenizes) {
  AddWorker();
  StartRouter();
  v1::TokenizeRequest tokenize;
  tokenize.mutable_generate()->set_text("Grüße an Oslo");
  v1::TokenizeResponse tokens;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->Tokenize(&first, tokenize, &tokens).ok());
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->Detokenize(&second, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "Grüße an Oslo");
  EXPECT_TRUE(text.pieces().empty()) << "they were not asked for";
  detokenize.set_pieces(true);
  grpc::ClientContext with_pieces;
  ASSERT_TRUE(stub_->Detokenize(&with_pieces, detokenize, &text).ok());
  ASSERT_EQ(text.pieces_size(), tokens.token_ids_size());
  std::string joined;
  for (const std::string& piece : text.pieces()) joined += piece;
  EXPECT_THAT(joined, HasSubstr("Grüße an Oslo"));
  detokenize.add_token_ids(2048);
  grpc::ClientContext third;
  const grpc::Status refused = stub_->Detokenize(&third, detokenize, &text);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("token id 2048 is outside the vocabulary of 2048"));
}

TEST_F(RouterTest, ListsItsModelAndWorkers) {
  AddWorker();
  AddWorker();
  AddWorker({.id = "p", .role = baton::fleet::v1::ROLE_PREFILL});
  StartRouter();
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "baton-tiny");
  EXPECT_EQ(models.models(0).context_tokens(), 2304u);
  EXPECT_EQ(models.models(0).vocabulary_tokens(), 2048u);
  EXPECT_EQ(models.models(0).ready_decode_workers(), 2u);
  EXPECT_EQ(models.models(0).ready_prefill_workers(), 1u);
}

TEST_F(RouterTest, ManyChoicesOnOneStream) {
  FakeWorker* decode = AddWorker();
  AddWorker();
  StartRouter();
  v1::GenerateRequest request = TextRequest();
  request.mutable_options()->set_n(8);
  request.mutable_sampling()->set_seed(100);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.started.size(), 1u);
  ASSERT_EQ(answer.finished.size(), 8u);
  for (uint32_t choice = 0; choice < 8; ++choice) EXPECT_EQ(answer.text(choice), "ab") << choice;
  EXPECT_EQ(decode->requests().size(), 4u) << "two workers share them";
  for (const baton::fleet::v1::DecodeRequest& one : decode->requests())
    EXPECT_EQ(one.sampling().seed(), 100 + one.choice());
}

TEST_F(RouterTest, OneFailedChoiceEndsTheRequest) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest& request) -> Script {
    if (request.choice() == 1)
      return {Step::Accept(), Step::Hold(), Step::End(absl::InternalError("broken"))};
    return {Step::Accept(), Step::Hold(), Step::Hold()};
  });
  StartRouter();
  v1::GenerateRequest request = TextRequest();
  request.mutable_options()->set_n(3);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, request);
  // The choice fails when all of them run: a call that is cancelled on its way never reaches the worker.
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 3; }));
  decode->Release();
  const Answer answer = ReadAll(&context, reader.get());
  EXPECT_TRUE(absl::IsInternal(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("broken"));
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.cancelled == 2; }));
}

// A proxy's connection carries the calls of many clients, and so does one of several channels of a process.
TEST_F(RouterTest, MetadataThatIsTooLargeEndsItsOwnCallAlone) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Token(6, "b"), Step::Finish()};
  });
  StartRouter();
  grpc::ClientContext running;
  const auto reader = stub_->Generate(&running, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  for (const size_t bytes : {8'100, 8'300, 15'000, 40'000, 60'000}) {
    const auto ends_alone = [bytes](const auto& call) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
      context.AddMetadata("x-large", std::string(bytes, 'a'));
      const grpc::Status status = call(&context);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << bytes;
      EXPECT_THAT(status.error_message(), HasSubstr("at most 8192 are taken")) << bytes;
    };
    ends_alone([&](grpc::ClientContext* context) {
      v1::ListModelsResponse models;
      return stub_->ListModels(context, {}, &models);
    });
    ends_alone([&](grpc::ClientContext* context) {
      return rpc::ToGrpc(ReadAll(context, stub_->Generate(context, TextRequest()).get()).status);
    });
  }
  decode->Release();
  ASSERT_TRUE(reader->Read(&response));
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(RouterTest, CancelReachesTheWorker) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Finish()};
  });
  StartRouter();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(response.has_delta());
  context.TryCancel();
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.cancelled == 1; }));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(AwaitMetric("baton_router_requests_total{outcome=\"CANCELLED\"}", 1));
}

v1::RequestUsage UsageIn(const grpc::ClientContext& context) {
  v1::RequestUsage usage;
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("baton-usage-bin");
  EXPECT_NE(found, trailers.end()) << "no usage";
  if (found != trailers.end()) {
    EXPECT_TRUE(usage.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())));
  }
  return usage;
}

std::string PushbackIn(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  return found == trailers.end() ? "none" : std::string(found->second.data(), found->second.size());
}

TEST_F(RouterTest, EveryAcceptedCallEndsWithItsUsageAlsoABadOne) {
  FakeWorker* decode = AddWorker();
  bool fail = false;
  decode->SetScript([&fail](const baton::fleet::v1::DecodeRequest&) -> Script {
    Step first = Step::Token(5, "a");
    first.event.mutable_opening()->mutable_usage()->set_decode_cached_tokens(1);
    if (fail) return {Step::Accept(), first, Step::Token(6, "b"), Step::End(absl::DataLossError("broken"))};
    return {Step::Accept(), first, Step::Token(6, "b"), Step::Finish()};
  });
  StartRouter();
  v1::ChatRequest chat;
  v1::Message* message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("Hello");
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    fail = fails;
    grpc::ClientContext streaming, whole;
    const Answer answer = ReadAll(&streaming, stub_->Generate(&streaming, TextRequest()).get());
    EXPECT_EQ(answer.status.ok(), !fails);
    const v1::Usage used = UsageIn(streaming).usage();
    EXPECT_EQ(used.prompt_tokens(), answer.started.at(0).prompt_tokens());
    EXPECT_EQ(used.cached_tokens(), 1u);
    EXPECT_EQ(used.plain_tokens(), used.prompt_tokens() - 1);
    EXPECT_EQ(used.completion_tokens(), 2u);
    if (!fails) {
      EXPECT_EQ(answer.finished.at(0).usage().SerializeAsString(), used.SerializeAsString());
    }

    v1::ChatUnaryResponse folded;
    v1::ChatUnaryRequest unary;
    *unary.mutable_chat() = chat;
    EXPECT_EQ(stub_->ChatUnary(&whole, unary, &folded).ok(), !fails);
    EXPECT_EQ(UsageIn(whole).usage().completion_tokens(), 2u);
  }
  grpc::ClientContext refused;
  v1::GenerateRequest bad = TextRequest();
  bad.mutable_options()->set_n(0);
  EXPECT_FALSE(ReadAll(&refused, stub_->Generate(&refused, bad).get()).status.ok());
  EXPECT_EQ(refused.GetServerTrailingMetadata().count("baton-usage-bin"), 0u) << "no worker accepted it";
}

// The fixture's router waits a second for what runs.
TEST_F(RouterTest, ACallThatADrainEndsTellsWhatItUsed) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold()};
  });
  StartRouter();
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, TextRequest());
  v1::GenerateResponse response;
  while (!response.has_delta()) ASSERT_TRUE(reader->Read(&response));
  std::thread stop([this] { router_->Stop(); });
  const Answer answer = ReadAll(&context, reader.get());
  stop.join();
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_EQ(rpc::ReasonOf(answer.status), "ROUTER_DRAINING");
  EXPECT_EQ(PushbackIn(context), "0");
  EXPECT_EQ(UsageIn(context).usage().completion_tokens(), 1u);
}

// gRPC's own retries obey this trailer.
TEST_F(RouterTest, ARefusalSaysWhenToTryAgainAlsoToGrpcsRetries) {
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
  ASSERT_TRUE(AwaitMetric("baton_router_queue_requests ", 1));
  const Answer answer = ReadAll(&refused, stub_->Generate(&refused, TextRequest()).get());
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status)) << answer.status;
  const auto delay = rpc::RetryDelay(answer.status);
  ASSERT_TRUE(delay.has_value());
  EXPECT_EQ(PushbackIn(refused),
            std::to_string(absl::ToInt64Milliseconds(absl::Ceil(*delay, absl::Milliseconds(1)))));
  for (grpc::ClientContext* context : {&runs, &waits}) context->TryCancel();
  first->Finish();
  second->Finish();
}

// Clients write "no deadline" as the largest time that they have.
TEST_F(RouterTest, DeadlinesFarAwayAreNone) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Finish()};
  });
  StartRouter();
  for (const int64_t years : {2, 200, 240, 290}) {
    SCOPED_TRACE(years);
    const auto set = [&](grpc::ClientContext& context) {
      const gpr_timespec all = gpr_time_from_seconds(years * 365 * 24 * 3600, GPR_TIMESPAN);
      context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), all));
    };
    grpc::ClientContext streaming, counting;
    set(streaming);
    set(counting);
    const Answer answer = ReadAll(&streaming, stub_->Generate(&streaming, TextRequest()).get());
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    v1::TokenizeRequest tokenize;
    tokenize.mutable_generate()->set_text("Hello");
    v1::TokenizeResponse tokens;
    const grpc::Status counted = stub_->Tokenize(&counting, tokenize, &tokens);
    EXPECT_TRUE(counted.ok()) << counted.error_message();
  }
}

TEST_F(RouterTest, SeedsThatTheRouterDrawsFitADouble) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Finish()};
  });
  StartRouter();
  std::set<uint64_t> seeds;
  for (int i = 0; i < 20; ++i) {
    const Answer answer = Generate(TextRequest());
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    seeds.insert(answer.started.at(0).seed());
    EXPECT_LT(answer.started[0].seed(), uint64_t{1} << 53);
  }
  EXPECT_EQ(seeds.size(), 20u);
}

// Clients of gRPC take 4 MiB in one message, and refuse more when all is computed and charged.
TEST_F(RouterTest, AnAnswerThatIsTooLargeForOneMessageIsRefusedFirst) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest& request) -> Script {
    Step token = Step::Token(5, "a");
    if (request.output().explain()) token.event.mutable_delta()->add_sampling();
    return {Step::Accept(), token, Step::Finish()};
  });
  StartRouter();
  v1::ChatRequest chat;
  v1::Message* message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("Hello");
  chat.mutable_options()->set_n(8);
  chat.mutable_stop()->set_max_tokens(2200);
  chat.mutable_output()->set_logprobs(true);
  chat.mutable_output()->set_top_logprobs(20);
  const auto ask = [&](uint32_t max_answer_bytes) {
    grpc::ClientContext context;
    v1::ChatUnaryRequest unary;
    *unary.mutable_chat() = chat;
    unary.set_max_answer_bytes(max_answer_bytes);
    v1::ChatUnaryResponse answer;
    return rpc::FromGrpc(stub_->ChatUnary(&context, unary, &answer));
  };
  const absl::Status refused = ask(0);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(rpc::ReasonOf(refused), "ANSWER_TOO_LARGE");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("stop.max_tokens: 8 choices of 2200 tokens"));
  EXPECT_TRUE(decode->requests().empty());
  EXPECT_TRUE(Chat(chat).status.ok()) << "as a stream";
  EXPECT_TRUE(ask(16 << 20).ok()) << "the client takes it";
  EXPECT_THAT(std::string(ask(20 << 20).message()), HasSubstr("max_answer_bytes: 20971520"));
  // Without max_tokens an answer ends where the message is full.
  chat.mutable_stop()->clear_max_tokens();
  EXPECT_TRUE(ask(100'000).ok());
  EXPECT_EQ(decode->requests().back().stop().max_tokens(), 100'000u / (8 * (8 + 18 * 21)));
  chat.mutable_output()->set_explain(true);
  EXPECT_TRUE(ask(100'000).ok());
  EXPECT_EQ(decode->requests().back().stop().max_tokens(), 100'000u / (8 * (8 + 18 * 21 + 480)));
}

TEST_F(RouterTest, APromptOfSeveralChoicesIsUsedOnce) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Finish()};
  });
  StartRouter();
  v1::GenerateRequest request = TextRequest();
  request.mutable_options()->set_n(3);
  grpc::ClientContext context;
  const Answer answer = ReadAll(&context, stub_->Generate(&context, request).get());
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const v1::Usage used = UsageIn(context).usage();
  EXPECT_EQ(used.prompt_tokens(), answer.started.at(0).prompt_tokens());
  EXPECT_EQ(used.completion_tokens(), 3u);
}

TEST_F(RouterTest, TheDeadlineReachesTheWorker) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold()};
  });
  StartRouter();
  const Answer answer = Generate(TextRequest(), absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status)) << answer.status;
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.running == 0; }));
  // The client's own clock may have cancelled the call a moment before the router's deadline.
  ASSERT_TRUE(AwaitMetric("baton_router_running ", 0));
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"DEADLINE_EXCEEDED\"}") +
                Metric("baton_router_requests_total{outcome=\"CANCELLED\"}"),
            1);
}

TEST_F(RouterTest, ASlowClientSlowsTheWorkerDown) {
  constexpr int kEvents = 4000;
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) {
    Script script = {Step::Accept()};
    for (int i = 0; i < kEvents; ++i) script.push_back(Step::Token(5, std::string(16384, 'x')));
    script.push_back(Step::Finish());
    return script;
  });
  StartRouter();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TextRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  // The worker goes on until every buffer on the way is full, and no further.
  int64_t out = -1;
  const auto stands_still = [&] {
    const int64_t before = out;
    out = decode->counts().events_out;
    if (out == before) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return false;
  };
  Await(stands_still, "a worker that stands still for half a second");
  EXPECT_LT(out, kEvents / 2) << "of 16 KiB each, and the client read none";
  const Answer rest = ReadAll(&context, reader.get());
  EXPECT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(rest.deltas.size(), static_cast<size_t>(kEvents));
}

TEST_F(RouterTest, AClientThatStopsReadingIsGivenUpAndHoldsNobody) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest& request) {
    Script script = {Step::Accept()};
    const int events = request.stop().max_tokens() == 1000 ? 4000 : 2;
    for (int i = 0; i < events; ++i) script.push_back(Step::Token(5, std::string(16384, 'x')));
    script.push_back(Step::Finish());
    return script;
  });
  StartRouter({.client_stall = absl::Milliseconds(500)});
  v1::GenerateRequest request = TextRequest();
  request.mutable_stop()->set_max_tokens(1000);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  // It reads no further; others are served, on the same connection too.
  EXPECT_TRUE(Generate(TextRequest()).status.ok());
  // Everything is let go while the client still sits there.
  ASSERT_TRUE(AwaitMetric("baton_router_clients_stalled_total ", 1));
  ASSERT_TRUE(AwaitMetric("baton_router_bookings ", 0));
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.running == 0; }));
  EXPECT_TRUE(AwaitMetric("baton_router_running ", 0)) << "no call is left behind";
  const Answer rest = ReadAll(&context, reader.get());
  EXPECT_TRUE(absl::IsAborted(rest.status)) << rest.status;
  EXPECT_THAT(std::string(rest.status.message()), HasSubstr("the client did not read for 0.5 s"));
  EXPECT_LT(rest.deltas.size(), 4000u);
}

}  // namespace
}  // namespace baton::router
