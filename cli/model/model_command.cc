// `baton model`: looks into model folders, fetches them, and writes them with quantized weights.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/model/inspect.h"
#include "cli/model/pull.h"
#include "cli/show/quantity.h"
#include "common/base/secret.h"
#include "common/device/thread_pool.h"
#include "common/model/quantized_folder.h"
#include "router/api/served_model.h"

namespace baton::cli {
namespace {

constexpr char kInspectExamples[] = R"(
Examples:
  baton model inspect models/small
  baton model inspect /srv/llama-3.2-1b --memory 24GiB --memory 80GiB
  baton model inspect models/small --json
  baton model inspect /srv/llama-3.2-1b-Q4_K_M.gguf

Says whether a router and workers would load it, by the checks that they make, and exits with 1 if not.
Nothing is kept in memory.)";

constexpr char kPullExamples[] = R"(
Examples:
  baton model pull Qwen/Qwen3-0.6B
      into the folder Qwen3-0.6B; again: only what is missing or has changed
  baton model pull Qwen/Qwen3-0.6B --revision 3f2a9c --to /srv/models/qwen > values.yaml
      what the chart wants of it: the commit and the SHA-256 of every file, for helm install -f values.yaml

Files: *.safetensors, *.json and *.jinja of the repository itself. Downloads are curl's: it must be installed, and
its settings for proxies hold.)";

constexpr char kQuantizeExamples[] = R"(
Examples:
  baton model quantize /srv/llama-3.2-1b /srv/llama-3.2-1b-int8 --weights int8
  baton serve --model /srv/llama-3.2-1b-int8
      the same tokens as `--model /srv/llama-3.2-1b --weights int8`, with a start that converts nothing

The folder is one of compressed-tensors, which other programs read too. Workers pair if all of them have it.)";

struct InspectFlags {
  std::string folder;
  std::vector<std::string> memories = {"1GiB"};
  bool json = false;
};

int Inspect(const InspectFlags& flags, const CliContext& context) {
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
    fmt::print("{}", RenderModel(name, *summary, memories, context.out));
  }
  return summary->loads.ok() ? kExitOk : kExitError;
}

struct QuantizeFlags {
  model::QuantizeOptions options;
  std::string weights = "int8";
};

int Quantize(const QuantizeFlags& flags, const CliContext& context) {
  model::QuantizeOptions options = flags.options;
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (name == flags.weights) options.precision = precision;
  }
  options.threads = device::UsableCores();
  int64_t shown = -1;
  if (context.err.interactive) {
    options.progress = [&shown](int64_t done, int64_t all) {
      const int64_t percent = 100 * done / std::max<int64_t>(1, all);
      if (percent == shown) return;
      shown = percent;
      fmt::print(stderr, "\r{:3}% of {} values", percent, ShowMagnitude(static_cast<double>(all)));
      std::fflush(stderr);
    };
  }
  const absl::Status status = model::WriteQuantized(options);
  if (shown >= 0) fmt::print(stderr, "\n");
  if (!status.ok()) return Fail(status);
  fmt::print(stderr, "{} is in {}\n", flags.weights, options.target);
  return kExitOk;
}

struct PullFlags {
  PullOptions options = {.revision = "main", .endpoint = "https://huggingface.co"};
  std::string token_file;
};

int PullModel(PullFlags flags, const CliContext& context) {
  PullOptions& options = flags.options;
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  if (const absl::Status status = CheckPull(options); !status.ok())
    return Misused(std::string(status.message()));
  if (options.folder.empty()) options.folder = std::filesystem::path(options.repository).filename().string();
  if (!flags.token_file.empty()) {
    absl::StatusOr<std::string> token = ReadSecretFile(flags.token_file, "token", 1);
    if (!token.ok()) return Fail(token.status());
    options.token = *std::move(token);
  }
  options.progress = context.err.interactive;
  const absl::StatusOr<Pulled> pulled =
      Pull(options, [](const std::string& what) { fmt::print(stderr, "{}\n", what); });
  if (!pulled.ok()) return Fail(pulled.status());
  fmt::print(stderr, "{} is in {}; the chart's values for it:\n", options.repository, options.folder);
  fmt::print("{}", ChartValues(options, *pulled));
  return kExitOk;
}

}  // namespace

Command AddModel(CLI::App& root, const CliContext& context) {
  CLI::App* app = root.add_subcommand("model", "Fetch a model, inspect its folder or file, or quantize it");
  app->require_subcommand(1);
  CLI::App* inspect = app->add_subcommand(
      "inspect",
      "Show whether a model loads, its shape, parameters and memory, and how many tokens of KV fit");
  inspect->footer(kInspectExamples);
  auto flags = std::make_shared<InspectFlags>();
  inspect->add_option("folder", flags->folder, "Model folder, as from Hugging Face, or a GGUF file")
      ->type_name("DIR")
      ->required();
  inspect
      ->add_option("--memory", flags->memories,
                   "KV memory for which to show the number of tokens (default: 1GiB)")
      ->type_name("SIZE")
      ->allow_extra_args(false);
  inspect->add_flag("--json", flags->json, "As JSON: bytes and tokens");
  CLI::App* pull =
      app->add_subcommand("pull", "Fetch a model from Hugging Face, and print the chart's values for it");
  pull->footer(kPullExamples);
  auto pulling = std::make_shared<PullFlags>();
  pull->add_option("repository", pulling->options.repository, "Which")->type_name("OWNER/NAME")->required();
  pull->add_option("--revision", pulling->options.revision, "Branch, tag or commit")
      ->type_name("REVISION")
      ->capture_default_str();
  pull->add_option("--to", pulling->options.folder, "Folder to write it to (default: the repository's name)")
      ->type_name("DIR");
  pull->add_option("--endpoint", pulling->options.endpoint, "Server, or a mirror of it")
      ->type_name("URL")
      ->capture_default_str();
  pull->add_option("--token-file", pulling->token_file,
                   "File with an access token, for repositories that are not public")
      ->type_name("FILE");
  CLI::App* quantize = app->add_subcommand(
      "quantize", "Write a copy of a model with int8 or 4-bit weights, which starts at once");
  quantize->footer(kQuantizeExamples);
  auto quantizing = std::make_shared<QuantizeFlags>();
  quantize->add_option("source", quantizing->options.source, "Model folder")
      ->type_name("DIR")
      ->required()
      ->check(CLI::ExistingPath);
  quantize->add_option("target", quantizing->options.target, "Folder to write; new")
      ->type_name("DIR")
      ->required();
  quantize->add_option("--weights", quantizing->weights, "Precision of matrices")
      ->check(CLI::IsMember({"int8", "int4"}))
      ->capture_default_str();
  return {app, [inspect, quantize, flags, pulling, quantizing, &context] {
            if (inspect->parsed()) return Inspect(*flags, context);
            return quantize->parsed() ? Quantize(*quantizing, context) : PullModel(*pulling, context);
          }};
}

}  // namespace baton::cli
