// Typed parts, through the public endpoint: what a router tells decode workers of them, and what Complete
// makes of a stream.
#include <filesystem>

#include "common/text/tokenizer.h"
#include "router/api/answer_fold.h"
#include "tests/integration/router/router_fixture.h"
#include "tests/patience.h"

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
Script CallScript(const v1::DecodeRequest&) {
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

  grpc::Status Complete(const v1::ChatRequest& request, v1::ChatAnswer* answer) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    return stub_->Complete(&context, request, answer);
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
  const v1::DecodeRequest asked = decode_worker_->requests().back();
  EXPECT_EQ(asked.answer_format().name(), "hermes");
  EXPECT_THAT(asked.answer_format().tools(), ElementsAre("get_time"));

  // The prompt holds all tools whatever the choice is, and thinks if asked to.
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_conversation() = chat.conversation();
  tokenize.mutable_conversation()->set_enable_thinking(true);
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

TEST_F(RouterPartsTest, CompleteIsTheFoldOfTheStream) {
  decode_worker_->SetScript(CallScript);
  StartRouter();
  v1::ChatRequest chat = ToolChat();
  chat.mutable_sampling()->set_seed(4);
  chat.mutable_options()->set_n(2);
  chat.mutable_output()->set_token_ids(true);
  v1::ChatAnswer whole;
  const grpc::Status status = Complete(chat, &whole);
  ASSERT_TRUE(status.ok()) << status.error_message();
  AnswerFold fold;
  grpc::ClientContext context;
  const auto reader = stub_->Chat(&context, chat);
  for (v1::GenerateResponse response; reader->Read(&response);) fold.Add(response);
  ASSERT_TRUE(reader->Finish().ok());
  v1::ChatAnswer streamed = fold.answer();
  for (v1::ChatAnswer* answer : {&whole, &streamed}) {
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
  decode_worker_->SetScript([](const v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::End(absl::InternalError("broken"))};
  });
  StartRouter();
  v1::ChatAnswer answer;
  const grpc::Status status = Complete(ToolChat(), &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("broken"));
  EXPECT_EQ(answer.choices_size(), 0);

  v1::ChatRequest either = ToolChat();
  either.mutable_constraint()->set_lark("start: nowhere");
  EXPECT_EQ(Complete(either, &answer).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RouterPartsTest, ACallOfCompleteCanBeCancelled) {
  decode_worker_->SetScript([](const v1::DecodeRequest&) -> Script {
    return {Step::Accept(), Step::Token(5, "a"), Step::Hold(), Step::Finish()};
  });
  StartRouter();
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  v1::ChatAnswer answer;
  grpc::Status status;
  const auto call = stub_->AsyncComplete(&context, ToolChat(), &queue);
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
  std::filesystem::copy_file(BATON_SOURCE_DIR "/tests/unit/output/templates/" + name + ".jinja",
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
  const v1::DecodeRequest asked = decode_worker_->requests().back();
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
