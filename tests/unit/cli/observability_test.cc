#include "cli/serve/observability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/serve/embedded.h"

namespace baton::cli {
namespace {

using testing::HasSubstr;

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Announcement Relay() {
  Announcement announcement;
  announcement.models = {"m"};
  announcement.processes = {{"decode-0", 1, "127.0.0.1:1", "127.0.0.1:2"},
                            {"prefill-1", 2, "127.0.0.1:3", "127.0.0.1:4"},
                            {"router", 3, "127.0.0.1:5", "127.0.0.1:6"},
                            {"moderator", 4, "127.0.0.1:7", "127.0.0.1:8"}};
  return announcement;
}

TEST(Observability, TargetsHaveTheChartsLabels) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "observability";
  ASSERT_TRUE(WriteObservability(Relay(), folder.string()).ok());
  const auto targets = nlohmann::json::parse(Read(folder / "targets.json"));
  ASSERT_EQ(targets.size(), 4);
  EXPECT_EQ(targets[1]["targets"][0], "127.0.0.1:4");
  EXPECT_EQ(targets[1]["labels"],
            nlohmann::json(
                {{"namespace", "local"}, {"release", "m"}, {"component", "prefill"}, {"pod", "prefill-1"}}));
  EXPECT_EQ(targets[2]["labels"]["component"], "router");
  EXPECT_EQ(targets[3]["labels"]["component"], "decode") << "it is a decode worker of the classifier";
}

TEST(Observability, EverythingIsThere) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "observability-all";
  ASSERT_TRUE(WriteObservability(Relay(), folder.string()).ok());
  EXPECT_THAT(Read(folder / "prometheus.yml"), HasSubstr("targets.json"));
  const std::string rules = Read(folder / "baton.rules.yaml");
  EXPECT_THAT(rules, HasSubstr("BatonNoDecodeWorker"));
  EXPECT_THAT(rules, testing::Not(HasSubstr("RUNBOOK_URL")));
  EXPECT_THAT(Read(folder / "grafana/provisioning/dashboards/baton.yml"),
              HasSubstr((folder / "grafana/dashboards").string()));
  int boards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "grafana/dashboards")) {
    EXPECT_TRUE(nlohmann::json::parse(Read(entry.path())).contains("panels")) << entry.path();
    ++boards;
  }
  EXPECT_EQ(boards + 1, static_cast<int>(EmbeddedFiles().size()));
}

TEST(Observability, AFolderThatCannotBeWrittenIsAnError) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "a-file";
  std::ofstream(file) << "x";
  const absl::Status status = WriteObservability(Relay(), (file / "folder").string());
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't write"));
}

}  // namespace
}  // namespace baton::cli
