// `baton model`: looks into model folders.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/model/inspect.h"
#include "cli/show/quantity.h"
#include "router/served_model.h"

namespace baton::cli {
namespace {

constexpr char kExamples[] = R"(
Examples:
  baton model inspect models/small
  baton model inspect /srv/llama-3.2-1b --memory 24GiB --memory 80GiB
  baton model inspect models/small --json

Says whether a router and workers would load the folder, by the checks that they make, and exits with 1 if not.
Nothing is kept in memory.)";

struct Flags {
  std::string folder;
  std::vector<std::string> memories = {"1GiB"};
  bool json = false;
};

int Inspect(const Flags& flags, const Surroundings& surroundings) {
  std::vector<int64_t> memories;
  for (const std::string& text : flags.memories) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(text);
    if (!bytes.ok()) return Misused(std::string(bytes.status().message()));
    memories.push_back(*bytes);
  }
  absl::StatusOr<model::ModelSummary> summary = model::ModelSummary::Load(flags.folder);
  if (!summary.ok()) return Fail(fmt::format("does not load: {}", std::string(summary.status().message())));
  // What is left for the router: the tokenizer and the chat template.
  summary->loads.Update(router::ServedModel::Load(flags.folder, "").status());
  const std::string name = std::filesystem::weakly_canonical(flags.folder).filename().string();
  if (flags.json) {
    fmt::print("{}\n", ModelToJson(name, *summary, memories).dump(2));
  } else {
    fmt::print("{}", RenderModel(name, *summary, memories, surroundings.out));
  }
  return summary->loads.ok() ? kExitOk : kExitError;
}

}  // namespace

Command AddModel(CLI::App& root, const Surroundings& surroundings) {
  CLI::App* app = root.add_subcommand("model", "Look into a model folder");
  app->require_subcommand(1);
  CLI::App* inspect = app->add_subcommand(
      "inspect", "Whether it loads, its shape, parameters and memory, and how many tokens' KV fits where");
  inspect->footer(kExamples);
  auto flags = std::make_shared<Flags>();
  inspect->add_option("folder", flags->folder, "Model folder, as from Hugging Face")
      ->type_name("DIR")
      ->required();
  inspect->add_option("--memory", flags->memories, "How many tokens' KV fits here? (default: 1GiB)")
      ->type_name("SIZE")
      ->allow_extra_args(false);
  inspect->add_flag("--json", flags->json, "As JSON: bytes and tokens");
  return {app, [flags, &surroundings] { return Inspect(*flags, surroundings); }};
}

}  // namespace baton::cli
