// Started.build, with a router and decode workers of the product: what it is of, and who is held to it.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/status.h"
#include "decode_service/server.h"
#include "router/router.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

const std::string kBuiltModel = BATON_SOURCE_DIR "/models/baton-tiny";

class BuildTest : public ::testing::Test {
 protected:
  static std::unique_ptr<decode_service::DecodeServer> StartDecode(engine::EngineOptions engine = {}) {
    worker::Options options;
    options.engine = std::move(engine);
    options.engine.model_folder = kBuiltModel;
    if (options.engine.threads == 0) options.engine.threads = 1;
    options.engine.kv_bytes = int64_t{16} << 20;
    return *decode_service::DecodeServer::Start({.worker = options});
  }
  struct Served {
    std::unique_ptr<Router> router;
    std::unique_ptr<v1::Inference::Stub> stub;

    std::string Listed() const {
      grpc::ClientContext context;
      v1::ListModelsResponse models;
      EXPECT_TRUE(stub->ListModels(&context, {}, &models).ok());
      return models.models(0).build();
    }
  };
  static Served StartRouter(const std::vector<std::string>& decode) {
    RouterOptions options;
    options.models = {{.folder = kBuiltModel}};
    options.decode = decode;
    options.keepalive.timeout = Scaled(absl::Seconds(60));
    Served served{*Router::Start(options), nullptr};
    Await([&] { return served.router->fleet().settled(); }, "word of the workers at the router");
    served.stub = v1::Inference::NewStub(
        grpc::CreateChannel(served.router->address(), grpc::InsecureChannelCredentials()));
    return served;
  }
  // The build in Started, and how the call ended.
  struct Outcome {
    std::string build;
    absl::Status status;
  };
  static Outcome Ask(v1::Inference::Stub& stub, const std::string& pinned = "") {
    v1::GenerateRequest request;
    request.set_text("Hello there");
    request.mutable_stop()->set_max_tokens(2);
    request.mutable_options()->set_build(pinned);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    const auto reader = stub.Generate(&context, request);
    Outcome outcome;
    for (v1::GenerateResponse response; reader->Read(&response);) {
      if (response.has_started()) outcome.build = response.started().build();
    }
    outcome.status = rpc::FromGrpc(reader->Finish());
    return outcome;
  }
  // The build of a fleet with such a worker.
  static std::string BuildOf(engine::EngineOptions engine) {
    const auto decode = StartDecode(std::move(engine));
    return Ask(*StartRouter({decode->address()}).stub).build;
  }
};

TEST_F(BuildTest, IsTheSameForAllThatAnswerAlikeAndAnotherForOtherWeightsAndKv) {
  const std::string build = BuildOf({});
  EXPECT_THAT(build, testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(BuildOf({.threads = 2}), build) << "another process, and another number of threads";
  std::set<std::string> builds = {build};
  EXPECT_TRUE(builds.insert(BuildOf({.weights = model::WeightPrecision::kInt8})).second);
  EXPECT_TRUE(builds.insert(BuildOf({.key_dtype = tensor::DType::kF32})).second);
  EXPECT_TRUE(builds.insert(BuildOf({.value_dtype = tensor::DType::kF32})).second);
  EXPECT_TRUE(builds.insert(BuildOf({.backend = "reference"})).second) << "other numerics";
}

TEST_F(BuildTest, TwoRoutersSayTheSame) {
  const auto decode = StartDecode();
  const Served first = StartRouter({decode->address()}), second = StartRouter({decode->address()});
  EXPECT_EQ(first.Listed(), second.Listed());
  EXPECT_EQ(Ask(*first.stub).build, second.Listed());
}

// The fleet's workers are replaced under load: a caller that is held to a build never gets another one, and
// hears which one serves.
TEST_F(BuildTest, AnUpgradeNeverShowsAPinnedCallerAnotherBuild) {
  auto old_worker = StartDecode();
  const auto new_worker = StartDecode({.weights = model::WeightPrecision::kInt8});
  const Served served = StartRouter({old_worker->address(), new_worker->address()});
  const std::string pinned = served.Listed();
  ASSERT_EQ(Ask(*served.stub, pinned).build, pinned);

  std::atomic<int> good{0}, refused{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      while (refused == 0) {
        const Outcome outcome = Ask(*served.stub, pinned);
        if (outcome.status.ok()) {
          EXPECT_EQ(outcome.build, pinned);
          ++good;
        } else if (absl::IsFailedPrecondition(outcome.status)) {
          EXPECT_EQ(rpc::ReasonOf(outcome.status), "BUILD_NOT_SERVED") << outcome.status;
          EXPECT_NE(rpc::ReasonMetadata(outcome.status, "build"), pinned);
          ++refused;
        } else {
          EXPECT_TRUE(absl::IsUnavailable(outcome.status)) << outcome.status;
        }
      }
    });
  }
  EXPECT_TRUE(Await([&] { return good > 4 || refused > 0; }, "answers of the old build"));
  old_worker = nullptr;
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(good, 0);
  const Outcome any = Ask(*served.stub);
  EXPECT_TRUE(any.status.ok()) << any.status;
  EXPECT_NE(any.build, pinned);
  EXPECT_EQ(served.Listed(), any.build);
}

}  // namespace
}  // namespace baton::router
