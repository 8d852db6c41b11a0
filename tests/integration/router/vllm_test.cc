// vLLM's gRPC protocol on the router's port.
#include <thread>

#include "common/rpc/status.h"
#include "tests/integration/router/router_fixture.h"
#include "vllm/control.grpc.pb.h"
#include "vllm/inference.grpc.pb.h"

namespace baton::router {
namespace {

using fakes::FakeWorker;
using fakes::Script;
using fakes::Step;
using ::testing::HasSubstr;

class VllmTest : public RouterTest {
 protected:
  void Start() {
    StartRouter();
    inference_ = ::vllm::Inference::NewStub(channel_);
    control_ = ::vllm::Control::NewStub(channel_);
  }
  static ::vllm::GenerateRequest Prompt(const std::string& id = "") {
    ::vllm::GenerateRequest request;
    request.set_request_id(id);
    request.set_text("Hello there");
    request.mutable_stopping()->set_max_new_tokens(9);
    return request;
  }
  void Abort(const std::string& id) {
    grpc::ClientContext context;
    ::vllm::AbortRequest request;
    request.add_request_ids(id);
    ::vllm::AbortResponse response;
    const grpc::Status status = control_->Abort(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  std::unique_ptr<::vllm::Inference::Stub> inference_;
  std::unique_ptr<::vllm::Control::Stub> control_;
};

// A token, and then nothing until it is cancelled.
Script OneTokenAndWait(const baton::fleet::v1::DecodeRequest&) {
  return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Finish()};
}

TEST_F(VllmTest, AnAnswerWholeAndInPiecesIsOne) {
  FakeWorker* decode = AddWorker();
  Start();
  ::vllm::GenerateRequest request = Prompt("one");
  request.mutable_response()->set_output_token_ids(true);
  grpc::ClientContext context;
  ::vllm::GenerateResponse whole;
  const grpc::Status status = inference_->Generate(&context, request, &whole);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(whole.outputs().text(), "ab");
  EXPECT_EQ(whole.outputs().num_tokens(), 2u);
  EXPECT_EQ(whole.outputs().token_ids_size(), 2);
  EXPECT_GT(whole.prompt_info().num_prompt_tokens(), 0u);
  EXPECT_NE(whole.outputs().finish_info().finish_reason(), ::vllm::FinishInfo::NOT_FINISHED);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("baton-usage-bin"), 1u)
      << "what it used, as of any request";
  ASSERT_EQ(decode->requests().size(), 1u);
  EXPECT_EQ(decode->requests()[0].stop().max_tokens(), 9u);
  grpc::ClientContext streamed;
  const auto stream = inference_->GenerateStream(&streamed, request);
  ::vllm::GenerateResponse piece;
  std::string text;
  int prompts = 0, ends = 0;
  while (stream->Read(&piece)) {
    prompts += piece.has_prompt_info() ? 1 : 0;
    ends += piece.outputs().has_finish_info() ? 1 : 0;
    text += piece.outputs().text();
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(prompts, 1);
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(Metric("baton_router_requests_total{outcome=\"OK\"}"), 2);
}

TEST_F(VllmTest, ErrorsNameTheField) {
  AddWorker();
  Start();
  const auto refused = [&](const ::vllm::GenerateRequest& request) {
    grpc::ClientContext context;
    ::vllm::GenerateResponse response;
    return rpc::FromGrpc(inference_->Generate(&context, request, &response));
  };
  ::vllm::GenerateRequest request = Prompt();
  request.set_lora_name("l");
  EXPECT_TRUE(absl::IsInvalidArgument(refused(request)));
  EXPECT_THAT(std::string(refused(request).message()), HasSubstr("lora_name: "));
  request = Prompt();
  request.set_model("other");
  EXPECT_TRUE(absl::IsNotFound(refused(request)));
  request = Prompt();
  request.mutable_stopping()->set_max_new_tokens(100000);
  EXPECT_TRUE(absl::IsInvalidArgument(refused(request))) << "more than the context";
}

TEST_F(VllmTest, AStreamIsEndedByItsName) {
  FakeWorker* decode = AddWorker();
  decode->SetScript(OneTokenAndWait);
  Start();
  grpc::ClientContext context;
  const auto stream = inference_->GenerateStream(&context, Prompt("mine"));
  ::vllm::GenerateResponse piece;
  ASSERT_TRUE(stream->Read(&piece));
  EXPECT_EQ(piece.outputs().text(), "a");
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  Abort("another");
  EXPECT_EQ(decode->counts().cancelled, 0);
  Abort("mine");
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.cancelled == 1; }));
  ASSERT_TRUE(stream->Read(&piece));
  EXPECT_EQ(piece.outputs().finish_info().finish_reason(), ::vllm::FinishInfo::ABORTED);
  EXPECT_EQ(piece.outputs().finish_info().num_output_tokens(), 1u);
  EXPECT_FALSE(stream->Read(&piece));
  EXPECT_TRUE(stream->Finish().ok());
  Abort("mine");  // it has ended: no error
}

TEST_F(VllmTest, AWholeAnswerIsEndedByItsNameToo) {
  FakeWorker* decode = AddWorker();
  decode->SetScript(OneTokenAndWait);
  Start();
  ::vllm::GenerateResponse whole;
  grpc::Status status;
  std::thread caller([&] {
    grpc::ClientContext context;
    status = inference_->Generate(&context, Prompt("mine"), &whole);
  });
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  Abort("mine");
  caller.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(whole.outputs().finish_info().finish_reason(), ::vllm::FinishInfo::ABORTED);
}

TEST_F(VllmTest, AClientThatLeavesCancelsItsRequest) {
  FakeWorker* decode = AddWorker();
  decode->SetScript(OneTokenAndWait);
  Start();
  grpc::ClientContext context;
  const auto stream = inference_->GenerateStream(&context, Prompt("mine"));
  ASSERT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  context.TryCancel();
  EXPECT_TRUE(decode->Await([](const FakeWorker::Counts& counts) { return counts.cancelled == 1; }));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(VllmTest, SaysWhatItIs) {
  AddWorker();
  Start();
  grpc::ClientContext first, second;
  ::vllm::ServerInfo server;
  ASSERT_TRUE(control_->GetServerInfo(&first, {}, &server).ok());
  EXPECT_THAT(server.engine_version(), HasSubstr("baton "));
  EXPECT_EQ(server.kv_block_size(), 16u);
  EXPECT_GT(server.max_model_len(), 0u);
  EXPECT_FALSE(server.instance_id().empty());
  ::vllm::ModelInfo model;
  ASSERT_TRUE(control_->GetModelInfo(&second, {}, &model).ok());
  EXPECT_EQ(model.served_model_name(), "baton-tiny");
  EXPECT_TRUE(model.supports_token_ids_input());
  EXPECT_FALSE(model.tool_call_parser().empty());
}

}  // namespace
}  // namespace baton::router
