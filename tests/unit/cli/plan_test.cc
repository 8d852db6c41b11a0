#include "cli/serve/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

// A folder with all binaries in it.
std::string Binaries(const std::string& name) {
  const fs::path folder = fs::path(testing::TempDir()) / name;
  fs::create_directories(folder);
  for (const char* const binary : {"baton-router", "baton-prefill", "baton-decode", "baton-gateway"}) {
    std::ofstream(folder / binary) << "#!/bin/sh\n";
    fs::permissions(folder / binary, fs::perms::owner_all);
  }
  return folder;
}

// The service goes on without a process whose group is empty, however often it dies.
TEST(PlanTest, TheServiceEndsWithItsRouterAndItsLastDecodeWorker) {
  const std::string folder = Binaries("plan_test");
  ServePlan plan;
  plan.models = {
      {.folder = "model", .name = "model", .decode = 2},
      {.folder = "other", .name = "other", .prefill = 0, .process = "other"},
      {.folder = "guard", .name = "guard", .prefill = 0, .sole_process = kModeratorName, .classifier = true}};
  plan.http = "127.0.0.1:0";
  const auto specs = MakeSpecs(plan, folder);
  ASSERT_TRUE(specs.ok()) << specs.status();
  std::map<std::string, std::string> groups;
  for (const ProcessSpec& spec : *specs) groups[spec.name] = spec.vital_group;
  using testing::Pair;
  EXPECT_THAT(groups,
              testing::ElementsAre(Pair("decode-0", "decode"), Pair("decode-1", "decode"),
                                   Pair("decode-other-0", "decode"), Pair("gateway", ""),
                                   Pair("moderator", ""), Pair("prefill-0", ""), Pair("router", "router")));
}

// A model's own flags before its role's, and these before all workers'.
TEST(PlanTest, TheNarrowestFlagOfANameCounts) {
  const std::string folder = Binaries("plan_flags");
  ServePlan plan;
  plan.router = false;
  plan.models = {{.folder = "model", .name = "model"},
                 {.folder = "other",
                  .name = "other",
                  .process = "other",
                  .flags = {"--chunk-tokens=3"},
                  .decode_flags = {"--weights=int4"}}};
  plan.chunk_tokens = 1;
  plan.worker_flags = {"--weights=int8", "--tolerant"};
  plan.prefill_flags = {"--chunk-tokens=2"};
  const auto specs = MakeSpecs(plan, folder);
  ASSERT_TRUE(specs.ok()) << specs.status();
  std::map<std::string, std::string> called;
  for (const ProcessSpec& spec : *specs) called[spec.name] = absl::StrJoin(spec.arguments({}), " ") + " ";
  const auto flags = [](const char* chunk, const char* weights) {
    return testing::AllOf(testing::HasSubstr(chunk), testing::HasSubstr(weights),
                          testing::HasSubstr("--tolerant "));
  };
  EXPECT_THAT(called["prefill-0"], flags("--chunk-tokens=2 ", "--weights=int8 "));
  EXPECT_THAT(called["decode-0"], flags("--chunk-tokens 1 ", "--weights=int8 "));
  EXPECT_THAT(called["prefill-other-0"], flags("--chunk-tokens=3 ", "--weights=int8 "));
  EXPECT_THAT(called["decode-other-0"], flags("--chunk-tokens=3 ", "--weights=int4 "));
  for (const auto& [name, line] : called) {
    const auto once = [&](const std::string& flag) { return line.find(flag) == line.rfind(flag); };
    EXPECT_TRUE(once("--chunk-tokens") && once("--weights")) << line;
  }
}

// The first by the router's flags, or all by the file; names of a model repeat its addresses.
TEST(PlanTest, TheRouterIsToldOfAllModels) {
  const std::string folder = Binaries("plan_router");
  ServePlan plan;
  plan.models = {
      {.folder = "model", .name = "model"},
      {.folder = "other", .name = "other", .prefill = 0, .process = "other", .entry = {{"folder", "other"}}},
      {.folder = "other", .name = "alias", .same_as = 1, .entry = {{"folder", "other"}, {"max_tokens", 9}}}};
  plan.moderation = {{"policy", "score"}};
  plan.models_file = folder + "/written.json";
  AddressBook book = {{"decode-0", {{"grpc", "h:1"}}},
                      {"prefill-0", {{"grpc", "h:2"}}},
                      {"decode-other-0", {{"grpc", "h:3"}}}};
  const auto called = [&] {
    const auto specs = MakeSpecs(plan, folder);
    return specs.ok() ? absl::StrJoin(specs->back().arguments(book), " ")
                      : std::string(specs.status().message());
  };
  const auto written = [&] {
    std::ifstream file(plan.models_file);
    return nlohmann::json::parse(file);
  };
  EXPECT_THAT(called(), testing::AllOf(
                            testing::HasSubstr("--model model --model-name model --decode h:1 --prefill h:2"),
                            testing::HasSubstr("--models " + plan.models_file)));
  const auto entry = [](const char* name, std::vector<std::string> decode,
                        nlohmann::json more = nlohmann::json::object()) {
    more.update(
        {{"folder", "other"}, {"name", name}, {"decode", decode}, {"prefill", nlohmann::json::array()}});
    return more;
  };
  nlohmann::json file = {{"models", {entry("other", {"h:3"}), entry("alias", {"h:3"}, {{"max_tokens", 9}})}},
                         {"moderation", {{"policy", "score"}}}};
  EXPECT_EQ(written(), file);
  // Its workers came back elsewhere, and the router is started again.
  book["decode-other-0"]["grpc"] = "h:4";
  called();
  EXPECT_EQ(written()["models"][1]["decode"], nlohmann::json({"h:4"}));

  plan.models.front().entry = {{"folder", "model"}};
  EXPECT_THAT(called(), testing::AllOf(testing::Not(testing::HasSubstr("--model ")),
                                       testing::Not(testing::HasSubstr("--decode "))));
  EXPECT_EQ(
      written()["models"][0],
      nlohmann::json({{"folder", "model"}, {"name", "model"}, {"decode", {"h:1"}}, {"prefill", {"h:2"}}}));
}

}  // namespace
}  // namespace baton::cli
