// Messages that are well-formed and would cost more than they are worth: each is refused before it has cost
// much, or given up when its call is over, while others are served.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "nlohmann/json.hpp"
#include "tests/integration/router/router_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class RouterCostlyTest : public RouterTest {
 protected:
  void SetUp() override { AddWorker({.total_blocks = 1 << 20}); }
  void TearDown() override {
    RouterTest::TearDown();
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // A router of the shipped model with a context of so many tokens, so that large texts may pass.
  void StartWithContext(int64_t tokens) {
    const std::string from = BATON_SOURCE_DIR "/models/baton-tiny";
    folder_ = fmt::format("{}/{}.{}", ::testing::TempDir(), "costly", getpid());
    fs::create_directories(folder_);
    for (const fs::directory_entry& file : fs::directory_iterator(from)) {
      if (file.is_regular_file() && file.path().extension() != ".safetensors") {
        fs::copy_file(file.path(), folder_ / file.path().filename(), fs::copy_options::overwrite_existing);
      }
    }
    auto config = nlohmann::json::parse(std::ifstream(folder_ / "config.json"));
    config["max_position_embeddings"] = tokens;
    std::ofstream(folder_ / "config.json") << config;
    RouterOptions options;
    options.models = {{.folder = folder_}};
    StartRouter(options);
  }

  // {"key0":0,"key1":1,...}
  static std::string ManyKeys(int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += fmt::format("{}\"key{}\":{}", i == 0 ? "" : ",", i, i);
    return text + "}";
  }
  static v1::ChatRequest WithTool(const std::string& parameters) {
    v1::ChatRequest request;
    v1::Message* message = request.mutable_conversation()->add_messages();
    message->set_role("user");
    message->set_content("hello");
    v1::Tool* tool = request.mutable_conversation()->add_tools();
    tool->set_name("t");
    tool->set_parameters_json(parameters);
    return request;
  }
  void ExpectRefused(const absl::Status& status, const std::string& words) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_LT(status.message().size(), 600u);
  }
  absl::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response) {
    grpc::ClientContext context;
    const grpc::Status status = stub_->Tokenize(&context, request, response);
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

  fs::path folder_;
};

std::string Repeated(const std::string& text, size_t bytes) {
  std::string all;
  all.reserve(bytes + text.size());
  while (all.size() < bytes) all += text;
  return all;
}

TEST_F(RouterCostlyTest, ToolsWithMoreKeysThanTheContextHasTokens) {
  StartRouter();
  const std::string keys = ManyKeys(100'000);
  std::vector<std::thread> attackers;
  for (int i = 0; i < 8; ++i) {
    attackers.emplace_back([&] {
      v1::ChatRequest request = WithTool(keys);
      ExpectRefused(Chat(request).status,
                    "conversation: more than 2304 messages, tools, calls and JSON values");
      request = WithTool("{}");
      v1::Message* message = request.mutable_conversation()->add_messages();
      message->set_role("assistant");
      v1::ToolCall* call = message->add_tool_calls();
      call->set_name("t");
      call->set_arguments_json(keys);
      ExpectRefused(Chat(request).status, "conversation: more than 2304 ");
      request = WithTool("{}");
      auto& fields = *request.mutable_conversation()->mutable_template_arguments()->mutable_fields();
      for (int key = 0; key < 100'000; ++key) fields[fmt::format("key{}", key)].set_bool_value(true);
      ExpectRefused(Chat(request).status, "conversation: more than 2304 ");
    });
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Generate(TextRequest()).status.ok()) << "others are served";
  for (std::thread& attacker : attackers) attacker.join();
}

// Where the context has room for them, they are read in linear time: the library's own way takes minutes
// here.
TEST_F(RouterCostlyTest, ToolsWithManyKeysInAContextThatHoldsThem) {
  StartWithContext(4'000'000);
  const Answer answer = Chat(WithTool(ManyKeys(200'000)));
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_GT(workers_[0]->requests().back().token_ids_size(), 200'000);
}

TEST_F(RouterCostlyTest, MoreMessagesThanTheContextHasTokens) {
  StartRouter();
  v1::ChatRequest request;
  for (int i = 0; i < 500'000; ++i) request.mutable_conversation()->add_messages()->set_role("user");
  ExpectRefused(Chat(request).status, "conversation: more than 2304 messages");
  EXPECT_TRUE(Generate(TextRequest()).status.ok());
}

TEST_F(RouterCostlyTest, JsonThatIsDeepOrSaysAKeyTwice) {
  StartRouter();
  ExpectRefused(Chat(WithTool("{\"a\":" + std::string(5'000'000, '['))).status,
                "conversation.tools[0].parameters_json: nested more than 64 deep");
  ExpectRefused(Chat(WithTool(R"({"type": "object", "type": "string"})")).status,
                "conversation.tools[0].parameters_json: key \"type\" stands twice in one object");
  EXPECT_TRUE(Chat(WithTool(R"({"type": "object"})")).status.ok());
}

TEST_F(RouterCostlyTest, TextsThatCantFitAreRefusedByTheirBytes) {
  StartRouter();
  ExpectRefused(Generate(TextRequest(Repeated("many words ", 15 << 20))).status,
                "bytes are more than 16 for each token of the model's context of 2304 tokens");
  // Below that, by the longest token that each byte is in.
  ExpectRefused(Generate(TextRequest(std::string(30'000, '7'))).status, "text: 30000 bytes are at least ");
  v1::ChatRequest chat = WithTool("{}");
  chat.mutable_conversation()->mutable_messages(0)->set_content(Repeated("many words ", 15 << 20));
  ExpectRefused(Chat(chat).status, "conversation: more than 36864 bytes as the model's template writes it");
  EXPECT_TRUE(Generate(TextRequest()).status.ok());
}

TEST_F(RouterCostlyTest, TokenizeHasABoundOfItsOwn) {
  StartRouter();
  v1::TokenizeRequest request;
  v1::TokenizeResponse response;
  // Twice the context: no prompt, but worth an answer.
  std::string& counted = *request.mutable_generate()->mutable_text();
  counted = Repeated("7 ", 4800);
  EXPECT_TRUE(Tokenize(request, &response).ok());
  EXPECT_GT(response.token_ids_size(), 2304);
  EXPECT_TRUE(absl::IsInvalidArgument(Generate(TextRequest(counted)).status));
  counted = Repeated("words ", 15 << 20);
  ExpectRefused(Tokenize(request, &response), "4 times the model's context of 2304 tokens");
  // By its bytes it might fit; what it really has is found out no further than the bound.
  counted = Repeated("zq", 30'000);
  ExpectRefused(Tokenize(request, &response), "text: ");
  v1::DetokenizeRequest ids;
  for (int i = 0; i < 4 * 2304 + 1; ++i) ids.add_token_ids(40);
  v1::DetokenizeResponse text;
  grpc::ClientContext context;
  const grpc::Status status = stub_->Detokenize(&context, ids, &text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("token_ids: 9217 ids, at most 9216 are taken"));
}

// Four texts that take seconds each, and whose callers have gone: none of them is worked on to its end, and a
// short text does not wait for them.
TEST_F(RouterCostlyTest, TextsWhoseCallIsOverAreDropped) {
  StartWithContext(8'000'000);
  const v1::GenerateRequest request =
      TextRequest(Repeated("the quick brown fox jumps over a dog. ", 15 << 20));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> callers;
  std::vector<absl::Status> ends(4);
  for (absl::Status& end : ends) {
    grpc::ClientContext* context = contexts.emplace_back(std::make_unique<grpc::ClientContext>()).get();
    callers.emplace_back(
        [&, context] { end = ReadAll(context, stub_->Generate(context, request).get()).status; });
  }
  EXPECT_TRUE(AwaitMetric("baton_router_running ", 4));
  EXPECT_TRUE(Generate(TextRequest()).status.ok()) << "while one of them is worked on and three wait";
  for (const auto& context : contexts) context->TryCancel();
  for (std::thread& caller : callers) caller.join();
  for (const absl::Status& end : ends) EXPECT_TRUE(absl::IsCancelled(end)) << end;
  EXPECT_TRUE(AwaitMetric("baton_router_preparations_dropped_total ", 4))
      << Metric("baton_router_preparations_dropped_total ") << " were dropped";
  EXPECT_EQ(workers_[0]->requests().size(), 1u) << "the short one's";
}

TEST_F(RouterCostlyTest, ErrorsCutWhatTheyRepeat) {
  StartRouter();
  const std::string name(1 << 20, 'n');
  v1::GenerateRequest request = TextRequest();
  request.set_model(name);
  const Answer unknown = Generate(request);
  EXPECT_TRUE(absl::IsNotFound(unknown.status)) << unknown.status;
  EXPECT_EQ(unknown.status.message(),
            fmt::format("model: \"{}\"... (1048576 bytes) is not served here; use \"baton-tiny\"",
                        name.substr(0, 100)));
  ExpectRefused(Chat(WithTool(fmt::format(R"({{"{0}": 1, "{0}": 2}})", name))).status,
                fmt::format("key \"{}\"... (1048576 bytes) stands twice", name.substr(0, 100)));
  v1::ChatRequest chat = WithTool("{}");
  chat.mutable_conversation()->mutable_messages(0)->set_role(std::string(10'000, 'r'));
  const std::string words(Chat(chat).status.message());
  EXPECT_THAT(words, HasSubstr("conversation.messages[0].role: \"rrr"));
  EXPECT_THAT(words, ::testing::Not(HasSubstr(std::string(101, 'r'))));
}

}  // namespace
}  // namespace baton::router
