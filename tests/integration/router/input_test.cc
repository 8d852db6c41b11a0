// Bad input over a real socket: one clear answer each, naming the field; the router stays up.
#include <cmath>
#include <functional>
#include <limits>

#include "common/rpc/status.h"
#include "tests/integration/router/router_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

class RouterInputTest : public RouterTest {
 protected:
  void SetUp() override {
    AddWorker();
    StartRouter();
  }

  void ExpectRefused(const v1::GenerateRequest& request, const std::string& words) {
    const Answer answer = Generate(request);
    EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr(words));
    EXPECT_FALSE(rpc::ReasonOf(answer.status).empty());
    EXPECT_FALSE(rpc::FieldOf(answer.status).empty());
    EXPECT_EQ(rpc::RequestIdOf(answer.status).size(), 16u);
    EXPECT_TRUE(answer.started.empty());
    EXPECT_TRUE(Generate(TextRequest()).status.ok()) << "the next one is served";
    EXPECT_TRUE(workers_[0]->requests().back().token_ids_size() > 0);
  }
};

TEST_F(RouterInputTest, AnEmptyPrompt) {
  ExpectRefused({}, "prompt: missing");
  ExpectRefused(TextRequest(""), "text: empty");
  v1::GenerateRequest ids;
  ids.mutable_token_ids();
  ExpectRefused(ids, "token_ids.ids: empty");
  v1::ChatRequest chat;
  EXPECT_THAT(std::string(Chat(chat).status.message()), HasSubstr("conversation.messages: empty"));
}

TEST_F(RouterInputTest, MoreThanTheContext) {
  v1::GenerateRequest request;
  for (int i = 0; i < 2000; ++i) request.mutable_token_ids()->add_ids(40);
  request.mutable_stop()->set_max_tokens(400);
  ExpectRefused(request,
                "a prompt of 2000 tokens and 400 more exceed the context of 2304; ask for at most 304 more");
  for (int i = 0; i < 304; ++i) request.mutable_token_ids()->add_ids(40);
  request.mutable_stop()->clear_max_tokens();
  ExpectRefused(request, "2304 tokens leave no room for an answer in the context of 2304");
}

TEST_F(RouterInputTest, SamplingOutOfRange) {
  struct Case {
    std::function<void(v1::GenerateRequest&)> set;
    const char* words;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case cases[] = {
      {[](auto& r) { r.mutable_sampling()->set_temperature(-1); }, "sampling.temperature: -1"},
      {[=](auto& r) { r.mutable_sampling()->set_temperature(nan); }, "sampling.temperature: nan"},
      {[](auto& r) { r.mutable_sampling()->set_top_p(0); }, "sampling.top_p: 0"},
      {[](auto& r) { r.mutable_sampling()->set_top_p(1.5); }, "sampling.top_p: 1.5"},
      {[](auto& r) { r.mutable_sampling()->set_top_k(-1); }, "sampling.top_k: -1"},
      {[](auto& r) { r.mutable_sampling()->set_min_p(2); }, "sampling.min_p: 2"},
      {[](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); }, "sampling.repetition_penalty: 0"},
      {[](auto& r) { r.mutable_sampling()->set_presence_penalty(3); }, "sampling.presence_penalty: 3"},
      {[](auto& r) { r.mutable_sampling()->set_frequency_penalty(-3); }, "sampling.frequency_penalty: -3"},
      {[](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[2048] = 1; },
       "sampling.logit_bias: token id 2048 is outside the vocabulary of 2048"},
      {[](auto& r) { r.mutable_options()->set_n(0); }, "options.n: 0"},
      {[](auto& r) { r.mutable_options()->set_n(9); }, "options.n: 9"},
      {[](auto& r) { r.mutable_options()->set_priority(11); }, "options.priority: 11"},
      {[](auto& r) {
         r.mutable_options()->set_prefill_only(true);
         r.mutable_options()->set_n(2);
       },
       "options.n: 2 choices of no tokens"},
      {[](auto& r) {
         r.mutable_options()->set_prefill_only(true);
         r.mutable_stop()->set_max_tokens(1);
       },
       "stop.max_tokens: with options.prefill_only nothing is generated"},
      {[](auto& r) { r.mutable_stop()->set_max_tokens(0); }, "stop.max_tokens: 0; ask for at least 1"},
      {[](auto& r) { r.mutable_stop()->add_stop(""); }, "stop.stop[0]: empty"},
      {[](auto& r) { r.mutable_stop()->add_stop(std::string(300, 'x')); }, "stop.stop[0]: 300 bytes"},
      {[](auto& r) {
         for (int i = 0; i < 17; ++i) r.mutable_stop()->add_stop("x");
       },
       "stop.stop: 17 strings"},
      {[](auto& r) { r.mutable_stop()->add_stop_token_ids(-1); }, "stop.stop_token_ids[0]: token id -1"},
      {[](auto& r) {
         r.mutable_output()->set_logprobs(true);
         r.mutable_output()->set_top_logprobs(21);
       },
       "output.top_logprobs: 21"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.words);
    v1::GenerateRequest request = TextRequest();
    one.set(request);
    ExpectRefused(request, one.words);
  }
}

TEST_F(RouterInputTest, ATokenOutsideTheVocabulary) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(3);
  request.mutable_token_ids()->add_ids(2048);
  ExpectRefused(request, "token_ids.ids[1]: token id 2048 is outside the vocabulary of 2048");
  request.mutable_token_ids()->set_ids(1, -1);
  ExpectRefused(request, "token_ids.ids[1]: token id -1");
}

TEST_F(RouterInputTest, AnUnknownModel) {
  v1::GenerateRequest request = TextRequest();
  request.set_model("gpt-9");
  const Answer answer = Generate(request);
  EXPECT_TRUE(absl::IsNotFound(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()),
              HasSubstr("\"gpt-9\" is not served here; use \"baton-tiny\""));
}

TEST_F(RouterInputTest, APromptMayBeComputedAlone) {
  v1::GenerateRequest request = TextRequest();
  request.mutable_options()->set_prefill_only(true);
  EXPECT_TRUE(Generate(request).status.ok());
  const baton::fleet::v1::DecodeRequest asked = workers_[0]->requests().back();
  EXPECT_TRUE(asked.stop().has_max_tokens());
  EXPECT_EQ(asked.stop().max_tokens(), 0u);
}

TEST_F(RouterInputTest, TextThatIsNotUtf8) {
  ExpectRefused(TextRequest("caf\xE9 noir"), "text: not UTF-8 at byte 3");
  v1::ChatRequest chat;
  v1::Message* message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("\xFF");
  const Answer answer = Chat(chat);
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
  EXPECT_EQ(answer.status.message(), "conversation.messages[0].content: not UTF-8 at byte 0");
  v1::TokenizeRequest tokenize;
  tokenize.mutable_generate()->set_text("\xFF");
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Tokenize(&context, tokenize, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RouterInputTest, AMessageOfMoreThanSixteenMegabytes) {
  const Answer answer = Generate(TextRequest(std::string(16 << 20, 'x')));
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
  EXPECT_EQ(rpc::ReasonOf(answer.status), "REQUEST_TOO_LARGE");
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("at most 16777216 are taken"));
}

TEST_F(RouterInputTest, NumbersThatNameNoValue) {
  v1::ChatRequest chat;
  v1::Message* message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("Hello");
  const auto refusal = [&](const auto& set) {
    v1::ChatRequest request = chat;
    set(request);
    const Answer answer = Chat(request);
    EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
    return std::string(answer.status.message());
  };
  EXPECT_EQ(
      refusal([](auto& r) { r.mutable_tool_choice()->set_mode(static_cast<v1::ToolChoice::Mode>(99)); }),
      "tool_choice.mode: 99 is none of its values: use MODE_AUTO, MODE_NONE or MODE_REQUIRED");
  EXPECT_THAT(refusal([](auto& r) { r.mutable_overflow()->set_mode(static_cast<v1::Overflow::Mode>(55)); }),
              HasSubstr("overflow.mode: 55 is none of its values: use MODE_REFUSE, "));
  EXPECT_THAT(
      refusal([](auto& r) { r.mutable_options()->set_speculation(static_cast<v1::Speculation>(66)); }),
      HasSubstr("options.speculation: 66 is none of its values: use SPECULATION_OFF, "));
}

TEST_F(RouterInputTest, AMessageOfAHundredMegabytes) {
  const Answer answer = Generate(TextRequest(std::string(100 << 20, 'x')));
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status)) << answer.status;
  EXPECT_TRUE(Generate(TextRequest()).status.ok()) << "the router is still there";
}

TEST_F(RouterInputTest, ATemplateThatFails) {
  v1::ChatRequest chat;
  v1::Message* message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("x");
  // The shipped template calls a function of this name.
  auto& variables = *chat.mutable_conversation()->mutable_template_arguments()->mutable_fields();
  variables["namespace"].set_string_value("none");
  const Answer answer = Chat(chat);
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("conversation: chat template: "));
  variables.clear();
  EXPECT_TRUE(Chat(chat).status.ok());
  // It refuses a system's message behind the first, so the router places it.
  message = chat.mutable_conversation()->add_messages();
  message->set_role("system");
  message->set_content("y");
  EXPECT_TRUE(Chat(chat).status.ok());
}

}  // namespace
}  // namespace baton::router
