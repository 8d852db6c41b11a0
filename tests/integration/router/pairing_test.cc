// A router and workers of the product, each with a model folder of its own: what has to be equal in both.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "baton/fleet/v1/worker.grpc.pb.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/status.h"
#include "decode_service/server.h"
#include "nlohmann/json.hpp"
#include "prefill_service/server.h"
#include "router/router.h"
#include "tests/log_lines.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using PairingJson = nlohmann::ordered_json;

const std::string kTiny = BATON_SOURCE_DIR "/models/baton-tiny";

worker::Options WorkerOf(const std::string& folder) {
  worker::Options options;
  options.engine.model_folder = folder;
  options.engine.threads = 1;
  options.engine.kv_bytes = int64_t{16} << 20;
  return options;
}

class PairingTest : public ::testing::Test {
 protected:
  ~PairingTest() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // A copy of the shipped model with one change of a JSON file.
  std::string CopyWith(const std::string& file, const std::function<void(PairingJson&)>& change) {
    const std::string copy = Copy();
    PairingJson json = PairingJson::parse(std::ifstream(copy + "/" + file));
    change(json);
    std::ofstream(copy + "/" + file) << json;
    return copy;
  }
  std::string Copy() {
    folder_ = fmt::format("{}/pairing_test.{}", ::testing::TempDir(), getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const fs::directory_entry& entry : fs::directory_iterator(kTiny)) {
      if (entry.is_regular_file()) fs::copy_file(entry.path(), folder_ / entry.path().filename());
    }
    return folder_;
  }

  void StartDecode(const std::string& folder) {
    auto decode = decode_service::DecodeServer::Start({.worker = WorkerOf(folder)});
    ASSERT_TRUE(decode.ok()) << decode.status();
    decode_ = *std::move(decode);
  }

  std::unique_ptr<Router> StartRouter(const std::string& folder) {
    RouterOptions options;
    options.models = {{.folder = folder}};
    options.decode = {decode_->address()};
    if (prefill_ != nullptr) options.prefill = {prefill_->address()};
    options.keepalive.timeout = Scaled(absl::Seconds(60));
    auto router = Router::Start(options);
    EXPECT_TRUE(router.ok()) << router.status();
    if (!router.ok()) return nullptr;
    Await([&] { return (*router)->fleet().settled(); }, "word of the workers at the router");
    return *std::move(router);
  }

  static absl::Status Generate(const Router& router) {
    const auto stub =
        v1::Inference::NewStub(grpc::CreateChannel(router.address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    v1::GenerateRequest request;
    request.set_text("Hello there");
    request.mutable_stop()->set_max_tokens(4);
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    return rpc::FromGrpc(reader->Finish());
  }

  // How a greedy chat ended.
  static v1::Finished FinishedChat(const Router& router) {
    const auto stub =
        v1::Inference::NewStub(grpc::CreateChannel(router.address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    v1::ChatRequest request;
    v1::Message* const message = request.mutable_conversation()->add_messages();
    message->set_role("user");
    message->set_content("Hello there");
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stop()->set_max_tokens(200);
    const auto reader = stub->Chat(&context, request);
    v1::Finished finished;
    for (v1::ChatResponse response; reader->Read(&response);) {
      if (response.has_finished()) finished = response.finished();
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return finished;
  }

  // The worker describes itself so.
  static baton::fleet::v1::WorkerInfo InfoOf(const std::string& address) {
    const auto stub =
        baton::fleet::v1::Worker::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    const auto reader = stub->Watch(&context, baton::fleet::v1::WatchRequest());
    baton::fleet::v1::WatchEvent event;
    EXPECT_TRUE(reader->Read(&event));
    context.TryCancel();
    reader->Finish();
    return event.snapshot().info();
  }

  static void SwapTwoTokens(PairingJson& tokenizer) {
    for (auto& [token, id] : tokenizer["model"]["vocab"].items()) {
      if (id == 1000 || id == 1001) id = 2001 - id.get<int>();
    }
  }

  fs::path folder_;
  std::unique_ptr<prefill_service::PrefillServer> prefill_;
  std::unique_ptr<decode_service::DecodeServer> decode_;
};

// The operator's number is the worker's own rule, and told to routers.
TEST_F(PairingTest, ADecodeWorkerTellsItsRuleForLocalPrefill) {
  StartDecode(kTiny);
  EXPECT_FALSE(InfoOf(decode_->address()).has_local_prefill_tokens());
  decode_ =
      decode_service::DecodeServer::Start({.worker = WorkerOf(kTiny), .local_prefill_tokens = 0}).value();
  const baton::fleet::v1::WorkerInfo info = InfoOf(decode_->address());
  EXPECT_TRUE(info.has_local_prefill_tokens());
  EXPECT_EQ(info.local_prefill_tokens(), 0u);
}

TEST_F(PairingTest, ARouterWithTheWorkersFolderServes) {
  prefill_ = prefill_service::PrefillServer::Start({.worker = WorkerOf(kTiny)}).value();
  StartDecode(kTiny);
  const auto router = StartRouter(Copy());
  EXPECT_EQ(router->fleet().view()->decode.size(), 1u);
  EXPECT_EQ(router->fleet().view()->prefill.size(), 1u);
  EXPECT_TRUE(Generate(*router).ok());
  const baton::fleet::v1::WorkerInfo prefill = InfoOf(prefill_->address());
  EXPECT_THAT(prefill.tokenizer_digest() + prefill.ends_digest(), IsEmpty()) << "it needs neither";
}

// As many tokens, and two of them have each other's ids.
TEST_F(PairingTest, ARouterWithOtherIdsIsTurnedAwayByName) {
  StartDecode(kTiny);
  const auto router = StartRouter(CopyWith("tokenizer.json", SwapTwoTokens));
  const absl::Status status = Generate(*router);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(router->fleet().NoDecodeWorker().message()),
              AllOf(HasSubstr("decode worker " + decode_->address() + " has another tokenizer ("),
                    HasSubstr("start both with the same model folder")));
}

TEST_F(PairingTest, ARouterWithOtherEndsIsTurnedAwayByName) {
  StartDecode(kTiny);
  const auto router = StartRouter(CopyWith("config.json", [](PairingJson& config) {
    config["eos_token_id"] = {2, 3};
  }));
  const absl::Status status = Generate(*router);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(router->fleet().NoDecodeWorker().message()),
              HasSubstr("decode worker " + decode_->address() + " ends answers at other tokens"));
}

// The turn's end of the shipped model, which config.json may leave to other files.
class EndsTest : public PairingTest {
 protected:
  static constexpr int kPad = 0, kTurnEnd = 2;

  // A copy of which each file names its end; kPad is one that the model never gives.
  std::string CopyWithEnds(int of_config, const PairingJson& of_generation, const char* of_tokenizer) {
    const std::string copy = Copy();
    const auto set = [&](const char* file, const char* name, const PairingJson& value) {
      PairingJson json = PairingJson::parse(std::ifstream(copy + "/" + file));
      json[name] = value;
      std::ofstream(copy + "/" + file) << json;
    };
    set("config.json", "eos_token_id", of_config);
    set("generation_config.json", "eos_token_id", of_generation);
    set("tokenizer_config.json", "eos_token", of_tokenizer);
    return copy;
  }
  v1::Finished AnswerOf(const std::string& folder) {
    StartDecode(folder);
    return FinishedChat(*StartRouter(folder));
  }
};

TEST_F(EndsTest, AnAnswerEndsWhereAnyOfTheFilesSays) {
  const v1::Finished by_config = AnswerOf(CopyWithEnds(kTurnEnd, kPad, "<|pad|>"));
  EXPECT_EQ(by_config.reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(by_config.stop_token_id(), kTurnEnd);
  const auto expect_same = [&](const std::string& folder) {
    const v1::Finished finished = AnswerOf(folder);
    EXPECT_EQ(finished.reason(), v1::FINISH_REASON_STOP_TOKEN);
    EXPECT_EQ(finished.stop_token_id(), kTurnEnd);
    EXPECT_EQ(finished.usage().completion_tokens(), by_config.usage().completion_tokens());
  };
  {
    SCOPED_TRACE("generation_config.json alone");
    expect_same(CopyWithEnds(kPad, {kPad, kTurnEnd}, "<|pad|>"));
  }
  {
    SCOPED_TRACE("the tokenizer alone");
    expect_same(CopyWithEnds(kPad, kPad, "<|end|>"));
  }
}

// The control: where no file names it, the answer goes on behind the turn's end.
TEST_F(EndsTest, AnAnswerGoesOnWhereNoFileSays) {
  const v1::Finished finished = AnswerOf(CopyWithEnds(kPad, kPad, "<|pad|>"));
  EXPECT_FALSE(finished.has_stop_token_id() && finished.stop_token_id() == kTurnEnd);
}

// The digest is of the union, in whatever file an end stands.
TEST_F(EndsTest, FoldersWithOneUnionPair) {
  const std::string folder = CopyWithEnds(kPad, kTurnEnd, "<|pad|>");
  StartDecode(folder);
  const auto router = StartRouter(CopyWithEnds(kTurnEnd, kPad, "<|end|>"));
  EXPECT_TRUE(Generate(*router).ok());
}

TEST_F(PairingTest, ADefaultThatCanNotBeUsedIsAWarning) {
  StartDecode(kTiny);
  const LogLines log;
  const auto router = StartRouter(CopyWith("generation_config.json", [](PairingJson& defaults) {
    defaults["top_k"] = -1;
    defaults["repetition_penalty"] = 0;
  }));
  ASSERT_NE(router, nullptr);
  EXPECT_TRUE(Generate(*router).ok());
  EXPECT_THAT(log.With("requests have no default for it"),
              ::testing::UnorderedElementsAre(HasSubstr("field \"top_k\""),
                                              HasSubstr("field \"repetition_penalty\"")));
}

// KV is of the weights and the ids: what ids stand for does not make it another one's.
TEST_F(PairingTest, TokenizerAndEndsAreNoPartOfBlockHashes) {
  StartDecode(kTiny);
  const baton::fleet::v1::WorkerInfo shipped = InfoOf(decode_->address());
  const std::string copy = CopyWith("tokenizer.json", SwapTwoTokens);
  PairingJson config = PairingJson::parse(std::ifstream(copy + "/config.json"));
  config["eos_token_id"] = {2, 3};
  std::ofstream(copy + "/config.json") << config;
  StartDecode(copy);
  const baton::fleet::v1::WorkerInfo other = InfoOf(decode_->address());
  EXPECT_THAT(shipped.tokenizer_digest(), SizeIs(32));
  EXPECT_THAT(shipped.ends_digest(), SizeIs(32));
  EXPECT_NE(shipped.tokenizer_digest(), other.tokenizer_digest());
  EXPECT_NE(shipped.ends_digest(), other.ends_digest());
  EXPECT_EQ(shipped.block_hash_domain(), other.block_hash_domain());
  EXPECT_EQ(shipped.fingerprint().SerializeAsString(), other.fingerprint().SerializeAsString());
}

TEST_F(PairingTest, RoutersWithDifferentTemplatesWarn) {
  StartDecode(kTiny);
  LogLines log;
  constexpr char kWarning[] = "has another chat template";
  const auto first = StartRouter(kTiny), same = StartRouter(kTiny);
  const std::string copy = Copy();
  std::ofstream(copy + "/chat_template.jinja", std::ios::app) << "{{ 'and more' }}";
  const auto other = StartRouter(copy);
  // Each of the three, once.
  EXPECT_TRUE(Await([&] { return log.With(kWarning).size() == 3; }, "a warning of each router"));
  for (const auto* router : {&first, &same, &other}) EXPECT_TRUE(Generate(**router).ok());
  EXPECT_THAT(log.With(kWarning), SizeIs(3)) << "not at each event";
  other->Stop();
  EXPECT_TRUE(Await([&] { return log.With("chat template again", spdlog::level::info).size() == 2; },
                    "the others to have one template again"));
}

TEST_F(PairingTest, RoutersWithOneTemplateDoNotWarn) {
  StartDecode(kTiny);
  const LogLines log;
  const auto first = StartRouter(kTiny), second = StartRouter(Copy());
  EXPECT_TRUE(Generate(*first).ok());
  EXPECT_TRUE(Generate(*second).ok());
  // The worker has told all its watchers of all others by now: the later one hears of both with its snapshot.
  EXPECT_THAT(log.With("has another chat template"), IsEmpty());
}

// Names of one fleet are names of one model.
TEST_F(PairingTest, NamesWithDifferentTokenizersAreRefusedAtTheStart) {
  RouterOptions options;
  options.decode = {"127.0.0.1:1"};
  options.models = {{.folder = kTiny, .name = "tiny"},
                    {.folder = CopyWith("tokenizer.json", SwapTwoTokens), .name = "swapped"}};
  const absl::Status status = Router::Start(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"tiny\" and \"swapped\" are different models (another tokenizer)"));
}

}  // namespace
}  // namespace baton::router
