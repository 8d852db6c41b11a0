// The KServe protocol on the router's port.
#include <map>
#include <thread>

#include "common/rpc/status.h"
#include "kserve/v2.grpc.pb.h"
#include "tests/integration/router/router_fixture.h"

namespace baton::router {
namespace {

using fakes::FakeWorker;
using fakes::Script;
using fakes::Step;
using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using ::testing::HasSubstr;

class KserveTest : public RouterTest {
 protected:
  void Start(RouterOptions options = {}, std::vector<std::string> more_decode = {}) {
    StartRouter(std::move(options), std::move(more_decode));
    kserve_ = inference::GRPCInferenceService::NewStub(channel_);
  }
  static ModelInferRequest Prompt(const std::string& id, const std::string& text = "Hello there",
                                  bool stream = false) {
    ModelInferRequest request;
    request.set_id(id);
    auto& input = *request.add_inputs();
    input.set_name("text_input");
    input.set_datatype("BYTES");
    input.add_shape(1);
    input.mutable_contents()->add_bytes_contents(text);
    if (!stream) return request;
    auto& flag = *request.add_inputs();
    flag.set_name("stream");
    flag.set_datatype("BOOL");
    flag.add_shape(1);
    flag.mutable_contents()->add_bool_contents(true);
    return request;
  }
  static void AskForTokens(ModelInferRequest& request, int32_t tokens) {
    auto& input = *request.add_inputs();
    input.set_name("max_tokens");
    input.set_datatype("INT32");
    input.add_shape(1);
    input.mutable_contents()->add_int_contents(tokens);
  }
  static std::string TextOf(const inference::ModelInferResponse& response) {
    return response.outputs_size() == 0 ? "" : response.outputs(0).contents().bytes_contents(0);
  }
  static bool Final(const inference::ModelInferResponse& response) {
    return response.parameters().at("triton_final_response").bool_param();
  }

  std::unique_ptr<inference::GRPCInferenceService::Stub> kserve_;
};

TEST_F(KserveTest, AnswersAPromptAndRepeatsIt) {
  FakeWorker* decode = AddWorker();
  Start();
  grpc::ClientContext context;
  inference::ModelInferResponse response;
  ModelInferRequest request = Prompt("one");
  AskForTokens(request, 9);
  const grpc::Status status = kserve_->ModelInfer(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.id(), "one");
  EXPECT_EQ(response.model_name(), "baton-tiny");
  EXPECT_EQ(TextOf(response), "Hello thereab");
  EXPECT_TRUE(Final(response));
  ASSERT_EQ(decode->requests().size(), 1u);
  EXPECT_EQ(decode->requests()[0].stop().max_tokens(), 9u);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("baton-usage-bin"), 1u)
      << "what it used, as of any request";
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"OK\"}"), 1);
}

TEST_F(KserveTest, ErrorsAreStatusesThatNameTheTensor) {
  AddWorker();
  Start();
  const auto refused = [&](const ModelInferRequest& request) {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    return rpc::FromGrpc(kserve_->ModelInfer(&context, request, &response));
  };
  ModelInferRequest request = Prompt("");
  AskForTokens(request, 100000);
  EXPECT_TRUE(absl::IsInvalidArgument(refused(request))) << "more than the context";
  request = Prompt("");
  request.set_model_name("other");
  EXPECT_TRUE(absl::IsNotFound(refused(request)));
  request = Prompt("");
  request.add_inputs()->set_name("image");
  const absl::Status unknown = refused(request);
  EXPECT_TRUE(absl::IsInvalidArgument(unknown));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("\"image\""));
}

TEST_F(KserveTest, AStreamCarriesSeveralRequestsAtATime) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest& request) -> Script {
    // The long one ends after all others.
    if (request.stop().max_tokens() == 7) {
      return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Token(6, "b"), Step::Finish()};
    }
    return {Step::Accept(), Step::Token(5, "a"), Step::Token(6, "b"), Step::Finish()};
  });
  Start();
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  ModelInferRequest slow = Prompt("slow", "Hello", /*stream=*/true);
  AskForTokens(slow, 7);
  ASSERT_TRUE(stream->Write(slow));
  ModelInferRequest bad = Prompt("bad");
  bad.add_inputs()->set_name("image");
  ASSERT_TRUE(stream->Write(bad));
  ASSERT_TRUE(stream->Write(Prompt("whole")));
  ASSERT_TRUE(stream->Write(Prompt("pieces", "Hello", /*stream=*/true)));
  std::map<std::string, std::string> texts;
  std::map<std::string, int> messages;
  std::vector<std::string> ended;
  bool released = false;
  ModelStreamInferResponse response;
  while (ended.size() < 4 && stream->Read(&response)) {
    const std::string id = response.infer_response().id();
    ++messages[id];
    if (response.error_message().empty()) {
      texts[id] += TextOf(response.infer_response());
    } else {
      EXPECT_THAT(response.error_message(), HasSubstr("image"));
    }
    if (Final(response.infer_response())) ended.push_back(id);
    if (ended.size() == 3 && !released) {
      released = decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; });
      ASSERT_TRUE(released);
      decode->Release();
    }
  }
  ASSERT_EQ(ended.size(), 4u);
  EXPECT_EQ(ended.back(), "slow");
  EXPECT_EQ(texts["slow"], "ab");
  EXPECT_EQ(texts["pieces"], "ab");
  EXPECT_EQ(texts["whole"], "Hello thereab");
  EXPECT_EQ(messages["whole"], 1);
  EXPECT_EQ(messages["pieces"], 3) << "two pieces and the end";
  EXPECT_EQ(messages["bad"], 1);
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(KserveTest, AStreamOfMoreThanItsShareGoesOnReadingWhenOneEnds) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold(), Step::Token(5, "a"), Step::Finish()};
  });
  Start();
  constexpr int kRequests = 80;
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  std::thread writer([&] {
    for (int i = 0; i < kRequests; ++i) stream->Write(Prompt(std::to_string(i)));
    stream->WritesDone();
  });
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 64; }));
  EXPECT_EQ(decode->counts().calls, 64) << "no more than 64 at a time";
  decode->Release();
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == kRequests - 64; }));
  decode->Release();
  int answers = 0;
  ModelStreamInferResponse response;
  while (stream->Read(&response)) answers += response.error_message().empty() ? 1 : 0;
  writer.join();
  EXPECT_EQ(answers, kRequests);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(KserveTest, WithTheHeaderAFailureIsTheStreamsStatusAndNothingGoesOn) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold(), Step::Finish()};
  });
  Start();
  grpc::ClientContext context;
  context.AddMetadata("triton_grpc_error", "true");
  auto stream = kserve_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(Prompt("held")));
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  ModelInferRequest bad = Prompt("bad");
  bad.add_inputs()->set_name("image");
  ASSERT_TRUE(stream->Write(bad));
  ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("image"));
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.cancelled == 1; }));
}

TEST_F(KserveTest, ACancelledStreamReachesAllItsWorkers) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Hold(), Step::Finish()};
  });
  Start();
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream->Write(Prompt(std::to_string(i))));
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 5; }));
  context.TryCancel();
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.cancelled == 5; }));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(KserveTest, AClientThatStopsReadingIsGivenUp) {
  FakeWorker* decode = AddWorker();
  decode->SetScript([](const baton::fleet::v1::DecodeRequest&) {
    Script script = {Step::Accept()};
    for (int i = 0; i < 4000; ++i) script.push_back(Step::Token(5, std::string(16384, 'x')));
    script.push_back(Step::Finish());
    return script;
  });
  Start({.client_stall = absl::Milliseconds(500)});
  grpc::ClientContext context;
  auto stream = kserve_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(Prompt("long", "Hello", /*stream=*/true)));
  ASSERT_TRUE(AwaitMetric("baton_router_clients_stalled_total ", 1));
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.running == 0; }));
  ModelStreamInferResponse response;
  while (stream->Read(&response)) continue;
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(KserveTest, SaysWhatItIsAndWhetherItIsReady) {
  AddWorker();
  Start();
  const auto context = [] { return std::make_unique<grpc::ClientContext>(); };
  inference::ServerLiveResponse live;
  EXPECT_TRUE(kserve_->ServerLive(context().get(), {}, &live).ok());
  EXPECT_TRUE(live.live());
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(kserve_->ServerReady(context().get(), {}, &ready).ok());
  EXPECT_TRUE(ready.ready());
  inference::ServerMetadataResponse server;
  EXPECT_TRUE(kserve_->ServerMetadata(context().get(), {}, &server).ok());
  EXPECT_EQ(server.name(), "baton");
  EXPECT_FALSE(server.version().empty());
  inference::ModelReadyRequest which;
  which.set_name("baton-tiny");
  inference::ModelReadyResponse model;
  EXPECT_TRUE(kserve_->ModelReady(context().get(), which, &model).ok());
  EXPECT_TRUE(model.ready());
  which.set_version("3");
  EXPECT_EQ(kserve_->ModelReady(context().get(), which, &model).error_code(), grpc::StatusCode::NOT_FOUND);
  inference::ModelMetadataRequest what;
  what.set_name("baton-tiny");
  inference::ModelMetadataResponse described;
  EXPECT_TRUE(kserve_->ModelMetadata(context().get(), what, &described).ok());
  EXPECT_EQ(described.inputs(0).name(), "text_input");
  EXPECT_EQ(described.outputs(0).name(), "text_output");
}

TEST_F(KserveTest, WithoutAWorkerItIsNotReady) {
  Start({}, {"127.0.0.1:1"});
  grpc::ClientContext context;
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(kserve_->ServerReady(&context, {}, &ready).ok());
  EXPECT_FALSE(ready.ready());
}

}  // namespace
}  // namespace baton::router
