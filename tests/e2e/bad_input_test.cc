// Every bad request gets one canonical error that says what to do, the service stays up, and no block stays
// held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "tests/e2e/fleet.h"

namespace baton::e2e {
namespace {

using testing::HasSubstr;

class BadInputTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { fleet_ = new Fleet; }
  static void TearDownTestSuite() {
    // After all of it the relay still answers, and holds nothing.
    EXPECT_TRUE(fleet_->Generate(TokenRequest({30, 31, 32}, 3)).status.ok());
    fleet_->ExpectNothingHeld();
    delete fleet_;
  }

  static void Expect(const v1::GenerateRequest& request, absl::StatusCode code, const std::string& says) {
    const Answer answer = fleet_->Generate(request);
    EXPECT_EQ(answer.status.code(), code) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr(says));
    EXPECT_TRUE(answer.tokens.empty());
  }

  static Fleet* fleet_;
};

Fleet* BadInputTest::fleet_ = nullptr;

TEST_F(BadInputTest, EmptyPrompts) {
  Expect(v1::GenerateRequest(), absl::StatusCode::kInvalidArgument, "prompt");
  v1::GenerateRequest text;
  text.set_text("");
  Expect(text, absl::StatusCode::kInvalidArgument, "prompt");
  Expect(TokenRequest({}, 3), absl::StatusCode::kInvalidArgument, "token_ids.ids: empty");
  const Answer chat = fleet_->Chat(v1::ChatRequest());
  EXPECT_EQ(chat.status.code(), absl::StatusCode::kInvalidArgument) << chat.status;
  EXPECT_THAT(std::string(chat.status.message()), HasSubstr("messages"));
}

TEST_F(BadInputTest, PromptAndMaxTokensBeyondTheContextStateBothNumbers) {
  v1::GenerateRequest request = TokenRequest(std::vector<int32_t>(2000, 40), 1000);
  Expect(request, absl::StatusCode::kInvalidArgument, "2000");
  Expect(request, absl::StatusCode::kInvalidArgument, "1000");
  Expect(request, absl::StatusCode::kInvalidArgument, "2304");
}

TEST_F(BadInputTest, ParametersOutOfRangeAreNamed) {
  const struct {
    const char* field;
    std::function<void(v1::GenerateRequest&)> set;
  } cases[] = {
      {"temperature", [](auto& r) { r.mutable_sampling()->set_temperature(-0.1f); }},
      {"temperature", [](auto& r) { r.mutable_sampling()->set_temperature(NAN); }},
      {"top_p", [](auto& r) { r.mutable_sampling()->set_top_p(0); }},
      {"top_p", [](auto& r) { r.mutable_sampling()->set_top_p(1.5f); }},
      {"top_k", [](auto& r) { r.mutable_sampling()->set_top_k(-1); }},
      {"min_p", [](auto& r) { r.mutable_sampling()->set_min_p(2); }},
      {"repetition_penalty", [](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); }},
      {"presence_penalty", [](auto& r) { r.mutable_sampling()->set_presence_penalty(3); }},
      {"logit_bias", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[99999] = 1; }},
      {"max_tokens", [](auto& r) { r.mutable_stop()->set_max_tokens(1'000'000); }},
      {"n", [](auto& r) { r.mutable_options()->set_n(0); }},
      {"n", [](auto& r) { r.mutable_options()->set_n(9); }},
      {"stop", [](auto& r) { r.mutable_stop()->add_stop(""); }},
      {"top_logprobs",
       [](auto& r) {
         r.mutable_output()->set_logprobs(true);
         r.mutable_output()->set_top_logprobs(21);
       }},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.field);
    v1::GenerateRequest request = TokenRequest({30, 31, 32}, 3);
    bad.set(request);
    Expect(request, absl::StatusCode::kInvalidArgument, bad.field);
  }
}

TEST_F(BadInputTest, UnknownModelNamesTheKnownOnes) {
  v1::GenerateRequest request = TokenRequest({30}, 3);
  request.set_model("gpt-7");
  Expect(request, absl::StatusCode::kNotFound, "baton-tiny");
}

TEST_F(BadInputTest, ATokenOutsideTheVocabularyIsNamed) {
  Expect(TokenRequest({30, 5000}, 3), absl::StatusCode::kInvalidArgument, "5000");
  Expect(TokenRequest({-1}, 3), absl::StatusCode::kInvalidArgument, "-1");
}

TEST_F(BadInputTest, InvalidUtf8) {
  v1::GenerateRequest request;
  request.set_text("fine until \xff\xfe here");
  const Answer answer = fleet_->Generate(request);
  EXPECT_FALSE(answer.status.ok());
  EXPECT_TRUE(answer.tokens.empty());
}

TEST_F(BadInputTest, AHugeMessageIsRefusedByItsSize) {
  v1::GenerateRequest request;
  request.set_text(std::string(100 << 20, 'a'));
  // A client without the limit of our own channels.
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto stub = v1::Inference::NewStub(
      grpc::CreateCustomChannel(fleet_->router().grpc(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(BadInputTest, AMessageOfNobodysRole) {
  v1::ChatRequest request;
  v1::Message& message = *request.mutable_conversation()->add_messages();
  message.set_role("wizard");
  message.set_content("hello");
  const Answer answer = fleet_->Chat(request);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument) << answer.status;
  EXPECT_NE(answer.status.message().find("conversation.messages[0].role"), std::string::npos)
      << answer.status;
}

TEST_F(BadInputTest, AWorkerRefusesAnotherFingerprintAndNamesTheDifference) {
  const auto watch = fleet::v1::Worker::NewStub(rpc::MakeChannel(fleet_->prefill().grpc()));
  grpc::ClientContext context;
  const auto events = watch->Watch(&context, fleet::v1::WatchRequest());
  fleet::v1::WatchEvent event;
  ASSERT_TRUE(events->Read(&event));
  EXPECT_EQ(event.sequence(), 1u);
  fleet::v1::PrefillRequest request;
  *request.mutable_fingerprint() = event.snapshot().info().fingerprint();
  request.mutable_fingerprint()->mutable_kv()->set_key_dtype("i8");
  request.add_token_ids(30);
  request.mutable_ticket()->add_generations(1);
  const auto prefill = fleet::v1::Prefill::NewStub(rpc::MakeChannel(fleet_->prefill().grpc()));
  grpc::ClientContext call;
  const auto reader = prefill->Prefill(&call, request);
  fleet::v1::PrefillEvent ignored;
  EXPECT_FALSE(reader->Read(&ignored));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("i8"));
  context.TryCancel();
}

}  // namespace
}  // namespace baton::e2e
