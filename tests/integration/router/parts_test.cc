// Typed parts, through the public endpoint: what a router tells decode workers of them, and what the
// unary calls make of a stream.
#include <filesystem>

#include "protocol/client/answer_event.h"
#include "protocol/client/answer_fold.h"
#include "tests/integration/router/router_fixture.h"
#include "tests/patience.h"
#include "text/tokenizer.h"

namespace baton::router {
namespace {

using fakes::FakeWorker;
using fakes::Script;
using fakes::Step;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ChatRequest ToolChat() {
  v1::ChatRequest chat;
  v1::Message* const message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("Weather in Oslo?");
  chat.mutable_conversation()->add_tools()->set_name("get_weather");
  chat.mutable_conversation()->add_tools()->set_name("get_time");
  return chat;
}

// An answer of one call, as a decode worker sends it.
Script CallScript(const baton::fleet::v1::DecodeRequest&) {
  Step first = Step::Token(5, "");
  v1::PartEvent* event = first.event.mutable_delta()->add_parts();
  event->mutable_start()->set_kind(v1::PartStart::KIND_TOOL_CALL);
  event->mutable_start()->set_id("id");
  event->mutable_start()->set_name("get_weather");
  first.event.mutable_delta()->add_parts()->set_arguments_json("{\"place\":");
  Step second = Step::Token(6, "");
  second.event.mutable_delta()->add_parts()->set_arguments_json(" \"Oslo\"}");
  second.event.mutable_delta()->add_parts()->mutable_end()->set_complete(true);
  return {Step::Accept(), first, second, Step::Finish(v1::FINISH_REASON_TOOL_CALLS)};
}

class RouterPartsTest : public RouterTest {
 protected:
  RouterPartsTest() : decode_worker_(AddWorker()) {}

  grpc::Status ChatUnary(const v1::ChatRequest& request, v1::ChatUnaryResponse* answer) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    v1::ChatUnaryRequest unary;
    *unary.mutable_chat() = request;
    return stub_->ChatUnary(&context, unary, answer);
  }

  FakeWorker* const decode_worker_;
};

TEST_F(RouterPartsTest, TheWorkerLearnsTheFormatAndTheTools) {
  StartRouter();
  v1::ChatRequest chat = ToolChat();
  chat.mutable_tool_choice()->add_names("get_time");
  chat.mutable_thinking()->set_enabled(true);
  const Answer answer = Chat(chat);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.started.at(0).output_format(), "hermes");
  const baton::fleet::v1::DecodeRequest asked = decode_worker_->requests().back();
  EXPECT_EQ(asked.answer_format().name(), "hermes");
  EXPECT_THAT(asked.answer_format().tools(), ElementsAre("get_time"));

  // The prompt holds all tools whatever the choice is, and thinks if asked to.
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_chat() = chat;
  grpc::ClientContext context;
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub_->Tokenize(&context, tokenize, &tokens).ok());
  EXPECT_TRUE(std::equal(tokens.token_ids().begin(), tokens.token_ids().end(), asked.token_ids().begin(),
                         asked.token_ids().end()));

  // A prompt of Generate is text, and so is an answer that was asked for as it is.
  ASSERT_TRUE(Generate(TextRequest()).status.ok());
  EXPECT_FALSE(decode_worker_->requests().back().has_answer_format());
  v1::ChatRequest raw = ToolChat();
  raw.mutable_output()->set_raw_text(true);
  ASSERT_TRUE(Chat(raw).status.ok());
  EXPECT_FALSE(decode_worker_->requests().back().has_answer_format());
}

// With all that changes the prompt: tools, thinking, and turns that are left out.
TEST_F(RouterPartsTest, TokensAreCountedAsChatCountsThem) {
  StartRouter();
  v1::ChatRequest chat = ToolChat();
  chat.mutable_thinking()->set_enabled(true);
  v1::ChatRequest plain = chat;
  plain.mutable_thinking()->set_enabled(false);
  v1::ChatRequest longer = chat;
  const v1::Message question = chat.conversation().messages(0);
  for (int i = 0; i < 300; ++i) {
    *longer.mutable_conversation()->add_messages() = question;
    v1::Message& answer = *longer.mutable_conversation()->add_messages();
    answer.set_role("assistant");
    answer.set_content("It rains in Oslo, and the wind comes from the west.");
  }
  *longer.mutable_conversation()->add_messages() = question;
  longer.mutable_overflow()->set_mode(v1::Overflow::MODE_DROP_OLDEST);
  std::vector<uint32_t> counts;
  for (const v1::ChatRequest& request : {chat, plain, longer}) {
    const Answer answer = Chat(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    v1::CountTokensRequest question_of;
    *question_of.mutable_chat() = request;
    v1::CountTokensResponse count;
    grpc::ClientContext context;
    const grpc::Status status = stub_->CountTokens(&context, question_of, &count);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(count.prompt_tokens(), answer.started.at(0).prompt_tokens());
    EXPECT_EQ(count.context().SerializeAsString(), answer.started[0].context().SerializeAsString());
    EXPECT_EQ(count.has_context(), request.has_overflow());
    counts.push_back(count.prompt_tokens());
  }
  EXPECT_NE(counts[0], counts[1]) << "the template writes thinking into the prompt";
  // A request that Chat would refuse is refused, but for the length of its prompt.
  v1::CountTokensRequest bad;
  *bad.mutable_chat() = longer;
  bad.mutable_chat()->clear_overflow();
  v1::CountTokensResponse count;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(stub_->CountTokens(&first, bad, &count).ok());
  EXPECT_GT(count.prompt_tokens(), 2304u);
  bad.mutable_chat()->mutable_tool_choice()->add_names("nobody");
  EXPECT_EQ(stub_->CountTokens(&second, bad, &count).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(stub_->CountTokens(&third, {}, &count).error_message(), "request: missing; set chat or generate");
}

TEST_F(RouterPartsTest, AUnaryCallOfGenerateIsTheFoldOfItsStream) {
  StartRouter();
  v1::GenerateRequest request = TextRequest();
  request.mutable_sampling()->set_seed(4);
  request.mutable_output()->set_token_ids(true);
  v1::GenerateUnaryRequest unary;
  *unary.mutable_generate() = request;
  grpc::ClientContext context;
  v1::GenerateUnaryResponse whole;
  const grpc::Status status = stub_->GenerateUnary(&context, unary, &whole);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const Answer streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status;
  std::string text;
  std::vector<int32_t> tokens;
  for (const v1::Delta& delta : streamed.deltas) {
    text += delta.text();
    tokens.insert(tokens.end(), delta.token_ids().begin(), delta.token_ids().end());
  }
  ASSERT_EQ(whole.choices_size(), 1);
  EXPECT_EQ(whole.started().seed(), 4u);
  EXPECT_EQ(whole.choices(0).text(), text);
  EXPECT_NE(text, "");
  EXPECT_THAT(whole.choices(0).token_ids(), testing::ElementsAreArray(tokens));
  EXPECT_TRUE(whole.choices(0).parts().empty());
  EXPECT_EQ(whole.choices(0).finished().reason(), streamed.finished.at(0).reason());
}

TEST_F(RouterPartsTest, AUnaryAnswerIsTheFoldOfTheStream) {
  decode_worker_->SetScript(CallScript);
  StartRouter();
  v1::ChatRequest chat = ToolChat();
  chat.mutable_sampling()->set_seed(4);
  chat.mutable_options()->set_n(2);
  chat.mutable_output()->set_token_ids(true);
  v1::ChatUnaryResponse whole;
  const grpc::Status status = ChatUnary(chat, &whole);
  ASSERT_TRUE(status.ok()) << status.error_message();
  protocol::AnswerFold fold;
  grpc::ClientContext context;
  const auto reader = stub_->Chat(&context, chat);
  for (v1::ChatResponse response; reader->Read(&response);) fold.Add(protocol::AnswerEvent(response));
  ASSERT_TRUE(reader->Finish().ok());
  v1::ChatUnaryResponse streamed = fold.answer();
  for (v1::ChatUnaryResponse* answer : {&whole, &streamed}) {
    EXPECT_FALSE(answer->started().request_id().empty());
    answer->mutable_started()->clear_request_id();
    for (v1::AnswerChoice& choice : *answer->mutable_choices()) choice.mutable_finished()->clear_timing();
  }
  EXPECT_EQ(whole.DebugString(), streamed.DebugString());
  ASSERT_EQ(whole.choices_size(), 2);
  EXPECT_EQ(whole.choices(1).parts(0).tool_call().arguments_json(), "{\"place\": \"Oslo\"}");
  EXPECT_THAT(whole.choices(1).token_ids(), ElementsAre(5, 6));
  EXPECT_EQ(whole.choices(1).finished().reason(), v1::FINISH_REASON_TOOL_CALLS);
}

TEST_F(RouterPartsTest, CompleteEndsAsTheStreamDoes) {
  decode_worker_->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::End(absl::InternalError("broken"))};
  });
  StartRouter();
  v1::ChatUnaryResponse answer;
  const grpc::Status status = ChatUnary(ToolChat(), &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("broken"));
  EXPECT_EQ(answer.choices_size(), 0);

  v1::ChatRequest either = ToolChat();
  either.mutable_constraint()->set_lark("start: nowhere");
  EXPECT_EQ(ChatUnary(either, &answer).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RouterPartsTest, ACallOfCompleteCanBeCancelled) {
  decode_worker_->SetScript([](const baton::fleet::v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Finish()};
  });
  StartRouter();
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  v1::ChatUnaryResponse answer;
  grpc::Status status;
  v1::ChatUnaryRequest unary;
  *unary.mutable_chat() = ToolChat();
  const auto call = stub_->AsyncChatUnary(&context, unary, &queue);
  call->Finish(&answer, &status, nullptr);
  EXPECT_TRUE(decode_worker_->Await([](const FakeWorker::Counts& counts) { return counts.held == 1; }));
  context.TryCancel();
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(decode_worker_->Await([](const FakeWorker::Counts& counts) { return counts.cancelled == 1; }));
}

TEST_F(RouterPartsTest, ListModelsTellsTheFormatAndTheOperatorMayNameAnother) {
  const auto listed = [&] {
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &response).ok());
    return response.models(0);
  };
  StartRouter();
  EXPECT_EQ(listed().output_format(), "hermes");
  EXPECT_TRUE(listed().tools());
  EXPECT_TRUE(listed().thinking());
  ASSERT_EQ(listed().unstable_history_size(), 1);
  EXPECT_EQ(listed().unstable_history(0), "thinking");
  router_->Stop();
  const std::string folder = BATON_SOURCE_DIR "/models/baton-tiny";
  StartRouter({.models = {{.folder = folder, .name = "", .output_format = "none"}}});
  EXPECT_EQ(listed().output_format(), "");
  EXPECT_FALSE(listed().tools());
  EXPECT_EQ(listed().unstable_history_size(), 0) << "no thinking is known";
  ASSERT_TRUE(Chat(ToolChat()).status.ok());
  EXPECT_FALSE(decode_worker_->requests().back().has_answer_format());
  const auto unknown = Router::Start(
      {.models = {{.folder = folder, .name = "", .output_format = "other"}}, .decode = decode_});
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("\"other\""));
}

// The shipped model's folder with another template. The model does not play a part: workers are fakes.
std::string FolderWithTemplate(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("baton_parts_" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::filesystem::path shipped = BATON_SOURCE_DIR "/models/baton-tiny";
  for (const char* const file :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(shipped / file, folder / file);
  }
  std::filesystem::copy_file(BATON_SOURCE_DIR "/tests/unit/text/output/templates/" + name + ".jinja",
                             folder / "chat_template.jinja");
  return folder.string();
}

// Templates of models that always think write the opener into the prompt. And these take the arguments of
// earlier calls as text: an object would not render.
TEST_F(RouterPartsTest, ThinkingThatThePromptOpensIsKnown) {
  const std::string folder = FolderWithTemplate("r1_distill");
  StartRouter({.models = {{.folder = folder, .name = "baton-tiny"}}});
  grpc::ClientContext context;
  v1::ListModelsResponse listed;
  ASSERT_TRUE(stub_->ListModels(&context, {}, &listed).ok());
  EXPECT_EQ(listed.models(0).output_format(), "deepseek_v3");
  EXPECT_TRUE(listed.models(0).tools());
  EXPECT_TRUE(listed.models(0).thinking());

  v1::ChatRequest chat = ToolChat();
  v1::Message* const call = chat.mutable_conversation()->add_messages();
  call->set_role("assistant");
  v1::ToolCall* const made = call->add_tool_calls();
  made->set_name("get_time");
  made->set_arguments_json("{\"zone\":  \"CET\"}");
  v1::Message* const again = chat.mutable_conversation()->add_messages();
  again->set_role("user");
  again->set_content("And the weather?");
  chat.mutable_thinking()->set_budget_tokens(7);
  chat.mutable_thinking()->set_show(v1::Thinking::SHOW_NONE);
  const Answer answer = Chat(chat);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const baton::fleet::v1::DecodeRequest asked = decode_worker_->requests().back();
  EXPECT_TRUE(asked.answer_format().thinking_begun());
  EXPECT_TRUE(asked.answer_format().hide_thinking());
  EXPECT_EQ(asked.answer_format().thinking_budget(), 7u);
  std::vector<TokenId> prompt;
  for (const int32_t id : asked.token_ids()) prompt.emplace_back(id);
  const auto tokenizer = text::Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Decode(prompt, /*keep_special=*/true).value(),
              HasSubstr("get_time\n```json\n{\"zone\":  \"CET\"}\n```"));
}

}  // namespace
}  // namespace baton::router
