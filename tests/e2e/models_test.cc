// Two models of different configuration behind one router, each with a decode worker of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

namespace fs = std::filesystem;

class ModelsTest : public ::testing::Test {
 protected:
  ModelsTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("models_e2e.{}", getpid())) {
    fs::create_directories(folder_ / "other");
    for (const fs::directory_entry& entry : fs::directory_iterator(kModel)) {
      if (entry.is_regular_file()) fs::copy_file(entry.path(), folder_ / "other" / entry.path().filename());
    }
    // The same weights, turned by other angles: another model, with other answers.
    auto config = nlohmann::json::parse(std::ifstream(folder_ / "other" / "config.json"));
    config["rope_theta"] = 77;
    std::ofstream(folder_ / "other" / "config.json") << config;
  }
  ~ModelsTest() override { fs::remove_all(folder_); }

  static uint32_t DecodeWorkersOf(Fleet& fleet, const std::string& name) {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    if (!fleet.stub().ListModels(&context, {}, &models).ok()) return 0;
    for (const v1::ModelInfo& model : models.models()) {
      if (model.name() == name) return model.ready_decode_workers();
    }
    return 0;
  }
  static bool AwaitDecodeWorkersOf(Fleet& fleet, const std::string& name, uint32_t count) {
    return Await([&] { return DecodeWorkersOf(fleet, name) == count; }, "the decode workers of " + name);
  }
  static Answer Ask(Fleet& fleet, const std::string& model) {
    v1::GenerateRequest request = TokenRequest({5, 6, 7, 8, 9, 10, 11, 12}, 16);
    request.set_model(model);
    return fleet.Generate(request);
  }

  const fs::path folder_;
};

TEST_F(ModelsTest, EachHasItsOwnWorkersAndOutlivesTheOthers) {
  const std::string other = folder_ / "other";
  Process worker("baton-decode", {"--model", other, "--threads", "1", "--kv-memory", "64MiB", "--worker-id",
                                  "other-0", "--log-level", "warn", "--exit-with-parent"});
  const std::string file = folder_ / "models.json";
  const nlohmann::json models = {
      {"models", {{{"name", "other"}, {"folder", other}, {"decode", {worker.grpc()}}}}}};
  std::ofstream(file) << models;
  Fleet fleet({.prefill = 0, .router_flags = {"--models", file}});
  ASSERT_TRUE(AwaitDecodeWorkersOf(fleet, "other", 1));

  const Answer tiny = Ask(fleet, "baton-tiny"), turned = Ask(fleet, "other");
  ASSERT_TRUE(tiny.status.ok()) << tiny.status;
  ASSERT_TRUE(turned.status.ok()) << turned.status;
  EXPECT_EQ(tiny.started.model(), "baton-tiny");
  EXPECT_EQ(turned.started.model(), "other");
  EXPECT_EQ(tiny.end().relay().decode_worker(), "decode-0");
  EXPECT_EQ(turned.end().relay().decode_worker(), "other-0");
  EXPECT_NE(tiny.digests, turned.digests);
  EXPECT_EQ(Ask(fleet, "").digests, tiny.digests) << "the default is --model";
  const Answer unknown = Ask(fleet, "third");
  EXPECT_TRUE(absl::IsNotFound(unknown.status)) << unknown.status;

  worker.Signal(SIGKILL);
  worker.Wait();
  ASSERT_TRUE(AwaitDecodeWorkersOf(fleet, "other", 0));
  EXPECT_TRUE(absl::IsUnavailable(Ask(fleet, "other").status));
  EXPECT_EQ(DecodeWorkersOf(fleet, "baton-tiny"), 1u);
  EXPECT_EQ(Ask(fleet, "baton-tiny").digests, tiny.digests);
}

}  // namespace
}  // namespace baton::e2e
