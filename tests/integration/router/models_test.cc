// Several models behind one router: names that share workers, and models with workers of their own.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/rpc/status.h"
#include "nlohmann/json.hpp"
#include "router/tenancy/api_key.h"
#include "tests/integration/router/router_fixture.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

namespace fs = std::filesystem;
using fakes::FakeWorker;
using ::testing::HasSubstr;

const std::string kTiny = BATON_SOURCE_DIR "/models/baton-tiny";

class RouterModelsTest : public RouterTest {
 protected:
  void TearDown() override {
    if (router_ != nullptr) RouterTest::TearDown();
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // A copy of the shipped model (without weights, which a router doesn't read) with another value in a file.
  std::string CopyWith(const std::string& file, const std::string& key, int value) {
    folder_ = fmt::format("{}/models_test.{}", ::testing::TempDir(), getpid());
    fs::create_directories(folder_);
    for (const fs::directory_entry& entry : fs::directory_iterator(kTiny)) {
      if (entry.is_regular_file() && entry.path().extension() != ".safetensors") {
        fs::copy_file(entry.path(), folder_ / entry.path().filename(), fs::copy_options::overwrite_existing);
      }
    }
    auto json = nlohmann::json::parse(std::ifstream(folder_ / file));
    json[key] = value;
    std::ofstream(folder_ / file) << json;
    return folder_;
  }

  // "tiny" is the shipped model; answers of "terse" have 5 tokens unless a request asks for more.
  void StartWithTwoNames() {
    RouterOptions options;
    options.models = {{.folder = kTiny, .name = "tiny"},
                      {.folder = CopyWith("generation_config.json", "max_new_tokens", 5), .name = "terse"}};
    StartRouter(options);
  }

  Answer Ask(const std::string& model) {
    v1::GenerateRequest request = TextRequest();
    request.set_model(model);
    return Generate(request);
  }

  fs::path folder_;
};

TEST_F(RouterModelsTest, ARequestByEachNameReachesAWorkerWithThatModelsDefaults) {
  FakeWorker* decode = AddWorker();
  StartWithTwoNames();
  struct Case {
    std::string asked, served;
    uint32_t max_tokens;
  };
  const std::vector<Case> cases = {{"terse", "terse", 5}, {"tiny", "tiny", 256}, {"", "tiny", 256}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.asked);
    const Answer answer = Ask(one.asked);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.started.at(0).model(), one.served);
    EXPECT_EQ(decode->requests().back().stop().max_tokens(), one.max_tokens);
  }
  EXPECT_EQ(decode->requests().size(), cases.size());
}

TEST_F(RouterModelsTest, AnUnknownNameIsRefusedWithTheListOfNames) {
  FakeWorker* decode = AddWorker();
  StartWithTwoNames();
  const std::string words = R"(model: "gpt-9" is not served here; use one of "tiny", "terse")";
  const Answer answer = Ask("gpt-9");
  EXPECT_TRUE(absl::IsNotFound(answer.status)) << answer.status;
  EXPECT_EQ(answer.status.message(), words);
  EXPECT_EQ(rpc::ReasonOf(answer.status), "MODEL_NOT_FOUND");
  EXPECT_EQ(rpc::ReasonMetadata(answer.status, "model"), "gpt-9");
  v1::TokenizeRequest tokenize;
  tokenize.mutable_generate()->set_text("Hello");
  tokenize.mutable_generate()->set_model("gpt-9");
  v1::TokenizeResponse tokens;
  grpc::ClientContext context;
  const grpc::Status refused = stub_->Tokenize(&context, tokenize, &tokens);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(refused.error_message(), words);
  EXPECT_TRUE(decode->requests().empty());
}

TEST_F(RouterModelsTest, BothAreListedWithTheFleetsWorkersTheDefaultFirst) {
  AddWorker();
  AddWorker({.id = "p", .role = baton::fleet::v1::ROLE_PREFILL});
  StartWithTwoNames();
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 2);
  EXPECT_EQ(models.models(0).name(), "tiny");
  EXPECT_EQ(models.models(1).name(), "terse");
  for (const v1::ModelInfo& model : models.models()) {
    EXPECT_EQ(model.context_tokens(), 2304u);
    EXPECT_EQ(model.vocabulary_tokens(), 2048u);
    EXPECT_EQ(model.ready_decode_workers(), 1u);
    EXPECT_EQ(model.ready_prefill_workers(), 1u);
  }
}

// The workers of one fleet have one fingerprint: requests for another model would go to the wrong weights.
TEST_F(RouterModelsTest, DifferentModelsAreRefusedAtTheStart) {
  RouterOptions options;
  options.decode = {"127.0.0.1:1"};
  options.models = {{.folder = kTiny, .name = "tiny"},
                    {.folder = CopyWith("config.json", "rope_theta", 77), .name = "other"}};
  const auto router = Router::Start(options);
  EXPECT_TRUE(absl::IsInvalidArgument(router.status())) << router.status();
  EXPECT_THAT(std::string(router.status().message()),
              HasSubstr("\"tiny\" and \"other\" are different models"));

  options.models = {{.folder = kTiny}, {.folder = kTiny}};
  EXPECT_THAT(std::string(Router::Start(options).status().message()),
              HasSubstr("two models have the name \"baton-tiny\""));
}

// Two models of different configuration, each with a decode worker of its own.
class RouterTwoModelsTest : public RouterModelsTest {
 protected:
  void StartTwo(RouterOptions options = {}) {
    tiny_ = AddWorker({.id = "t"});
    other_ = AddWorker({.id = "o"});
    options.models = {
        {.folder = kTiny, .name = "tiny"},
        {.folder = CopyWith("config.json", "rope_theta", 77), .name = "other", .decode = {decode_.back()}}};
    decode_.pop_back();
    StartRouter(options);
    Await([&] { return !router_->fleet("other").view()->decode.empty(); }, "the other model's worker");
  }

  v1::ListModelsResponse Models() {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &models).ok());
    return models;
  }

  FakeWorker* tiny_ = nullptr;
  FakeWorker* other_ = nullptr;
};

TEST_F(RouterTwoModelsTest, ARequestGoesToAWorkerOfItsModel) {
  StartTwo();
  for (const std::string name : {"other", "tiny", "other", ""}) {
    const Answer answer = Ask(name);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.started.at(0).model(), name.empty() ? "tiny" : name);
  }
  EXPECT_EQ(tiny_->requests().size(), 2u);
  EXPECT_EQ(other_->requests().size(), 2u);
  EXPECT_TRUE(AwaitMetric("baton_router_requests_total{outcome=\"OK\"}", 4));
  EXPECT_TRUE(AwaitMetric("baton_router_ttft_seconds_count{model=\"tiny\"}", 2));
  EXPECT_TRUE(AwaitMetric("baton_router_ttft_seconds_count{model=\"other\"}", 2));
  EXPECT_TRUE(AwaitMetric("baton_router_bookings{model=\"other\"}", 0));
}

TEST_F(RouterTwoModelsTest, AWorkerThatDiesTakesItsModelAwayAndNoOther) {
  RouterOptions options;
  options.dispatcher.max_wait = absl::Milliseconds(200);  // for another worker
  StartTwo(options);
  other_->Kill();
  Await([&] { return router_->fleet("other").view()->decode.empty(); },
        "the other model's worker to be missed");
  const v1::ListModelsResponse models = Models();
  ASSERT_EQ(models.models_size(), 2);
  EXPECT_EQ(models.models(0).ready_decode_workers(), 1u);
  EXPECT_EQ(models.models(1).ready_decode_workers(), 0u);
  EXPECT_TRUE(absl::IsUnavailable(Ask("other").status));
  EXPECT_TRUE(Ask("tiny").status.ok());
}

// A tenant's limit of requests per minute is one number, whatever the models.
TEST_F(RouterTwoModelsTest, ATenantsRateHoldsForAllModelsTogether) {
  const std::string file = fmt::format("{}/models_test_tenants.{}.json", ::testing::TempDir(), getpid());
  std::ofstream(file) << R"({"tenants": [{"name": "guest", "anonymous": true, "requests_per_minute": 2}]})";
  RouterOptions options;
  options.tenants.file = file;
  StartTwo(options);
  EXPECT_TRUE(Ask("tiny").status.ok());
  EXPECT_TRUE(Ask("other").status.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Ask("tiny").status));
  EXPECT_TRUE(absl::IsResourceExhausted(Ask("other").status));
  fs::remove(file);
}

// Two tenants, and a model for one of them.
class RouterModelLimitsTest : public RouterModelsTest {
 protected:
  RouterModelLimitsTest() : file_(::testing::TempDir() + "/models_tenants_" + ads_.id + ".json") {
    std::ofstream(file_) << fmt::format(
        R"({{"tenants": [{{"name": "ads", "keys": [{{"id": "{}", "sha256": "{}"}}]}},
                         {{"name": "guest", "anonymous": true}}]}})",
        ads_.id, ads_.sha256);
  }
  ~RouterModelLimitsTest() override { fs::remove(file_); }

  // "own" is for the tenant "ads" alone, and the router's first.
  void Start(RouterOptions::Model own) {
    RouterOptions options;
    own.folder = kTiny;
    own.name = "own";
    own.tenants = {"ads"};
    options.models = {own, {.folder = kTiny, .name = "common"}};
    options.tenants.file = file_;
    StartRouter(options);
  }
  std::unique_ptr<grpc::ClientContext> ContextOf(bool ads) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    if (ads) context->AddMetadata("x-api-key", ads_.key);
    return context;
  }
  Answer AskAs(bool ads, const v1::GenerateRequest& request) {
    const auto context = ContextOf(ads);
    return ReadAll(context.get(), stub_->Generate(context.get(), request).get());
  }
  static v1::GenerateRequest RequestFor(const std::string& model, uint32_t max_tokens = 0) {
    v1::GenerateRequest request = TextRequest();
    request.set_model(model);
    if (max_tokens > 0) request.mutable_stop()->set_max_tokens(max_tokens);
    return request;
  }
  std::vector<std::string> NamesFor(bool ads) {
    const auto context = ContextOf(ads);
    v1::ListModelsResponse models;
    EXPECT_TRUE(stub_->ListModels(context.get(), {}, &models).ok());
    std::vector<std::string> names;
    for (const v1::ModelInfo& model : models.models()) names.push_back(model.name());
    return names;
  }

  const NewApiKey ads_ = MakeApiKey();
  const std::string file_;
};

TEST_F(RouterModelLimitsTest, AModelIsThereForItsTenantsAlone) {
  AddWorker();
  Start({});
  EXPECT_THAT(NamesFor(true), ::testing::ElementsAre("own", "common"));
  EXPECT_THAT(NamesFor(false), ::testing::ElementsAre("common"));
  const Answer own = AskAs(true, RequestFor("own"));
  ASSERT_TRUE(own.status.ok()) << own.status;
  EXPECT_EQ(own.started.at(0).model(), "own");
  EXPECT_EQ(AskAs(true, RequestFor("")).started.at(0).model(), "own");
  const Answer refused = AskAs(false, RequestFor("own"));
  EXPECT_TRUE(absl::IsNotFound(refused.status)) << refused.status;
  EXPECT_EQ(refused.status.message(), R"(model: "own" is not served here; use "common")");
  const Answer otherwise = AskAs(false, RequestFor(""));
  ASSERT_TRUE(otherwise.status.ok()) << otherwise.status;
  EXPECT_EQ(otherwise.started.at(0).model(), "common");
  v1::TokenizeRequest tokenize;
  tokenize.mutable_generate()->set_text("Hello");
  tokenize.mutable_generate()->set_model("own");
  v1::TokenizeResponse tokens;
  EXPECT_EQ(stub_->Tokenize(ContextOf(false).get(), tokenize, &tokens).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(stub_->Tokenize(ContextOf(true).get(), tokenize, &tokens).ok());
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(40);
  detokenize.set_model("own");
  v1::DetokenizeResponse text;
  EXPECT_EQ(stub_->Detokenize(ContextOf(false).get(), detokenize, &text).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(RouterModelLimitsTest, AnswersOfAModelHaveAtMostItsTokens) {
  FakeWorker* decode = AddWorker();
  Start({.max_tokens = 7});
  ASSERT_TRUE(AskAs(true, RequestFor("own")).status.ok());
  EXPECT_EQ(decode->requests().back().stop().max_tokens(), 7u) << "the default of 256 is too much";
  ASSERT_TRUE(AskAs(true, RequestFor("own", 3)).status.ok());
  EXPECT_EQ(decode->requests().back().stop().max_tokens(), 3u);
  const Answer refused = AskAs(true, RequestFor("own", 8));
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status)) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()),
              HasSubstr(R"(stop.max_tokens: 8, and answers of model "own" have at most 7 here)"));
  EXPECT_TRUE(AskAs(true, RequestFor("common", 300)).status.ok());
}

// With MODE_CLAMP_OUTPUT, as over HTTP, a larger number is lowered, and the client is told.
TEST_F(RouterModelLimitsTest, ALargerNumberIsLoweredForWhoTakesLess) {
  FakeWorker* decode = AddWorker();
  Start({.max_tokens = 7});
  v1::GenerateRequest request = RequestFor("own", 8);
  request.mutable_overflow()->set_mode(v1::Overflow::MODE_CLAMP_OUTPUT);
  const Answer lowered = AskAs(true, request);
  ASSERT_TRUE(lowered.status.ok()) << lowered.status;
  EXPECT_EQ(decode->requests().back().stop().max_tokens(), 7u);
  ASSERT_EQ(lowered.finished.at(0).warnings_size(), 1);
  EXPECT_EQ(lowered.finished.at(0).warnings(0).kind(), v1::Warning::KIND_SETTING);
  EXPECT_EQ(lowered.finished.at(0).warnings(0).message(),
            "max_tokens: 8 were asked for, and answers of this model have at most 7 here");
  request.mutable_stop()->set_max_tokens(7);
  EXPECT_TRUE(AskAs(true, request).finished.at(0).warnings().empty());
  // Nor does a number that one message could not hold stand in the way of one that is lowered.
  request.mutable_stop()->set_max_tokens(1 << 30);
  v1::GenerateUnaryRequest unary;
  *unary.mutable_generate() = request;
  v1::GenerateUnaryResponse whole;
  const absl::Status status = rpc::FromGrpc(stub_->GenerateUnary(ContextOf(true).get(), unary, &whole));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(RouterModelLimitsTest, ARequestThatNamesNoNumberGetsTheOperatorsDefault) {
  FakeWorker* decode = AddWorker();
  Start({.max_tokens = 700, .default_max_tokens = 300});
  ASSERT_TRUE(AskAs(true, RequestFor("own")).status.ok());
  EXPECT_EQ(decode->requests().back().stop().max_tokens(), 300u) << "the model's own is 256";
  ASSERT_TRUE(AskAs(true, RequestFor("own", 700)).status.ok());
  EXPECT_EQ(decode->requests().back().stop().max_tokens(), 700u);
}

TEST_F(RouterModelLimitsTest, HintsComeWithTheFirstChoice) {
  AddWorker();
  Start({});
  v1::GenerateRequest request = RequestFor("own", 3);
  request.mutable_sampling()->set_temperature(1.9f);
  request.mutable_options()->set_n(2);
  const Answer answer = AskAs(true, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.finished.size(), 2u);
  for (const v1::Finished& finished : answer.finished) {
    EXPECT_EQ(finished.warnings_size(), finished.choice() == 0 ? 1 : 0);
  }
}

TEST_F(RouterModelLimitsTest, AModelsRateHoldsForAllThatUseItAndForNoOtherModel) {
  AddWorker();
  Start({.requests_per_minute = 2});
  EXPECT_TRUE(AskAs(true, RequestFor("own")).status.ok());
  EXPECT_TRUE(AskAs(true, RequestFor("own")).status.ok());
  const Answer refused = AskAs(true, RequestFor("own"));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status)) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()),
              HasSubstr("the model's limit of 2 requests per minute is used up"));
  EXPECT_TRUE(rpc::RetryDelay(refused.status).has_value());
  EXPECT_TRUE(AskAs(true, RequestFor("common")).status.ok());
}

}  // namespace
}  // namespace baton::router
