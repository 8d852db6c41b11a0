#include "cli/serve/observability.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_replace.h"
#include "cli/serve/embedded.h"
#include "common/base/status.h"

namespace baton::cli {
namespace {

constexpr char kPrometheus[] =
    R"(# Written by `baton serve --observability`. Run: prometheus --config.file=THIS
global:
  scrape_interval: 5s
  evaluation_interval: 15s
rule_files: [baton.rules.yaml]
scrape_configs:
  - job_name: baton
    file_sd_configs:
      - files: [targets.json]
        refresh_interval: 5s
)";

constexpr char kDatasource[] = R"(apiVersion: 1
datasources:
  - name: Prometheus
    type: prometheus
    access: proxy
    url: http://127.0.0.1:9090
    isDefault: true
)";

constexpr char kProvider[] = R"(apiVersion: 1
providers:
  - name: baton
    folder: Baton
    type: file
    options:
      path: {}
)";

absl::Status Write(const std::filesystem::path& path, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const std::filesystem::path draft = path.string() + ".tmp";
  {
    std::ofstream file(draft);
    file << text;
    if (!file.flush()) return absl::ErrnoToStatus(errno, fmt::format("can't write {}", draft.string()));
  }
  std::filesystem::rename(draft, path, error);
  if (error) {
    return absl::UnavailableError(fmt::format("can't write {}: {}", path.string(), error.message()));
  }
  return absl::OkStatus();
}

// "prefill-1" is a prefill worker; so are they named by plan.cc.
// A classifier is served by a decode worker, and alerts and dashboards go by roles.
std::string Component(const std::string& process) {
  const std::string name = process.substr(0, process.find('-'));
  return name == "moderator" ? "decode" : name;
}

std::string Targets(const Announcement& announcement) {
  auto targets = nlohmann::ordered_json::array();
  for (const Announcement::Process& process : announcement.processes) {
    targets.push_back({{"targets", {process.metrics}},
                       {"labels",
                        {{"namespace", "local"},
                         {"release", announcement.models.front()},
                         {"component", Component(process.name)},
                         {"pod", process.name}}}});
  }
  return targets.dump(2) + "\n";
}

}  // namespace

absl::Status WriteObservability(const Announcement& announcement, const std::string& folder) {
  std::error_code error;
  const std::filesystem::path root = std::filesystem::absolute(folder, error);
  BATON_RETURN_IF_ERROR(Write(root / "prometheus.yml", kPrometheus));
  BATON_RETURN_IF_ERROR(Write(root / "targets.json", Targets(announcement)));
  const std::filesystem::path boards = root / "grafana" / "dashboards";
  const std::filesystem::path provisioning = root / "grafana" / "provisioning";
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (std::filesystem::path(file.name).extension() == ".json") {
      BATON_RETURN_IF_ERROR(Write(boards / file.name, file.text));
    } else {
      const std::string text = absl::StrReplaceAll(absl::string_view(file.text.data(), file.text.size()),
                                                   {{"RUNBOOK_URL", "deploy/runbook.md"}});
      BATON_RETURN_IF_ERROR(Write(root / file.name, text));
    }
  }
  BATON_RETURN_IF_ERROR(Write(provisioning / "datasources" / "baton.yml", kDatasource));
  return Write(provisioning / "dashboards" / "baton.yml", fmt::format(kProvider, boards.string()));
}

}  // namespace baton::cli
