#include "cli/serve/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

// The service goes on without a process whose group is empty, however often it dies.
TEST(PlanTest, TheServiceEndsWithItsRouterAndItsLastDecodeWorker) {
  const fs::path folder = fs::path(testing::TempDir()) / "plan_test";
  fs::create_directories(folder);
  for (const char* const name : {"baton-router", "baton-prefill", "baton-decode", "baton-gateway"}) {
    std::ofstream(folder / name) << "#!/bin/sh\n";
    fs::permissions(folder / name, fs::perms::owner_all);
  }
  ServePlan plan;
  plan.model_folder = "model";
  plan.decode = 2;
  plan.http = "127.0.0.1:0";
  const auto specs = MakeSpecs(plan, folder);
  ASSERT_TRUE(specs.ok()) << specs.status();
  std::map<std::string, std::string> groups;
  for (const ProcessSpec& spec : *specs) groups[spec.name] = spec.vital_group;
  EXPECT_THAT(groups,
              testing::ElementsAre(testing::Pair("decode-0", "decode"), testing::Pair("decode-1", "decode"),
                                   testing::Pair("gateway", ""), testing::Pair("prefill-0", ""),
                                   testing::Pair("router", "router")));
}

}  // namespace
}  // namespace baton::cli
