// `baton model`: looks into model folders, fetches them, writes them with quantized weights or fewer experts,
// and packs experts for workers that keep them on a disk.
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
#include "cli/model/prune.h"
#include "cli/model/pull.h"
#include "cli/show/quantity.h"
#include "cli/text/text_windows.h"
#include "common/base/secret.h"
#include "common/command_line/option_types.h"
#include "common/rpc/lifecycle.h"
#include "engine/device/thread_pool.h"
#include "engine/model/expert_packing.h"
#include "engine/model/quantized_folder.h"
#include "router/api/served_model.h"
#include "text/config/config.h"
#include "text/config/model_path.h"

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

  baton model pull bartowski/Llama-3.2-1B-Instruct-GGUF --file Llama-3.2-1B-Instruct-Q4_K_M.gguf
      one GGUF file, for baton serve --model Llama-3.2-1B-Instruct-GGUF/Llama-3.2-1B-Instruct-Q4_K_M.gguf

Files: *.safetensors, *.json and *.jinja of the repository itself, or one *.gguf. Downloads are curl's: it must be
installed, and its settings for proxies hold.)";

constexpr char kQuantizeExamples[] = R"(
Examples:
  baton model quantize /srv/llama-3.2-1b /srv/llama-3.2-1b-int8 --weights int8
  baton serve --model /srv/llama-3.2-1b-int8
      the same tokens as `--model /srv/llama-3.2-1b --weights int8`, with a start that converts nothing
  baton model quantize /srv/llama-3.2-1b /srv/llama-3.2-1b-w8a8 --weights int8 --portable
      as compressed-tensors writes it, for other programs, too; more is lost, which baton eval --reference measures
  baton model quantize /srv/llama-3.2-1b /srv/llama-3.2-1b-int4 --weights int4 --calibration code.txt
      4 bits that lose half as much or less of text like that of code.txt, in some minutes

Workers pair if all of them have the folder.)";

constexpr char kPruneExamples[] = R"(
Examples:
  baton model prune /srv/qwen3-30b-a3b /srv/qwen3-23b-a3b --keep 0.75 --calibration code.txt
      three quarters of the experts of each layer, those that matter most for code.txt
  baton model prune /srv/qwen3-30b-a3b /srv/pruned --keep 0.5 --calibration code.txt --max-loss 0.03
      exits with 1 if the loss on text that was held out has grown by more than 3%

Scores are those of REAP: the mean, over the tokens that chose an expert, of its weight times the norm of what it
gave. Every tenth window of the text is held out. prune.json in the new folder has scores and ids.)";

constexpr char kPackExamples[] = R"(
Examples:
  baton model pack --model /srv/qwen3-30b-a3b --weights int4 --out /nvme/qwen3-30b-a3b.experts
      the experts of all layers, in the form that workers of --backend cpu compute with

Memory: the rest of the model, and one expert. The file is there once it is whole; a full disk leaves nothing. A file
that has these weights already is checked and left as it is.)";

struct InspectFlags {
  std::string folder;
  std::vector<std::string> memories = {"1GiB"}, expert_memories = {};
  bool json = false;
};

int Inspect(const InspectFlags& flags, const CliContext& context) {
  Budgets budgets;
  for (const auto& [texts, sizes] :
       {std::pair(&flags.memories, &budgets.kv), std::pair(&flags.expert_memories, &budgets.experts)}) {
    for (const std::string& text : *texts) {
      const absl::StatusOr<int64_t> bytes = ParseBytes(text);
      if (!bytes.ok()) return Misused(std::string(bytes.status().message()));
      sizes->push_back(*bytes);
    }
  }
  absl::StatusOr<model::ModelSummary> summary = model::ModelSummary::Load(flags.folder);
  if (!summary.ok()) return Fail(fmt::format("does not load: {}", std::string(summary.status().message())));
  // The router loads the tokenizer and the chat template, too. A folder that asks for too much ends this
  // process.
  if (const absl::Status logs = rpc::SetUpLogging("model", "warn"); !logs.ok()) return Fail(logs);
  summary->loads.Update(router::ServedModel::Load(flags.folder, "").status());
  const std::string name = std::filesystem::weakly_canonical(flags.folder).filename().string();
  if (flags.json) {
    fmt::print("{}\n", ModelToJson(name, *summary, budgets).dump(2));
  } else {
    fmt::print("{}", RenderModel(name, *summary, budgets, context.out));
  }
  return summary->loads.ok() ? kExitOk : kExitError;
}

// A line of a terminal that says how many values are converted.
class ValuesLine {
 public:
  explicit ValuesLine(const CliContext& context) : interactive_(context.err.interactive) {}
  model::ConversionProgress progress() {
    if (!interactive_) return {};
    return [this](int64_t done, int64_t all) {
      const int64_t percent = 100 * done / std::max<int64_t>(1, all);
      if (percent == shown_) return;
      shown_ = percent;
      fmt::print(stderr, "\r{:3}% of {} values", percent, ShowMagnitude(static_cast<double>(all)));
      std::fflush(stderr);
    };
  }
  void End() const {
    if (shown_ >= 0) fmt::print(stderr, "\n");
  }

 private:
  const bool interactive_;
  int64_t shown_ = -1;
};

// Tokens of a text of the calibration.
constexpr int64_t kCalibrationWindow = 512;

struct QuantizeFlags {
  model::QuantizeOptions options;
  std::string weights = "int8", calibration;
  int64_t tokens = 8192;
};

int Quantize(const QuantizeFlags& flags, const CliContext& context) {
  model::QuantizeOptions options = flags.options;
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (name == flags.weights) options.precision = precision;
  }
  options.threads = device::UsableCores();
  if (!flags.calibration.empty()) {
    if (options.precision != model::WeightPrecision::kInt4) {
      return Misused("--calibration is for --weights int4: int8 loses next to nothing");
    }
    const auto config = model::ModelConfig::Load(options.source);
    if (!config.ok()) return Fail(config.status());
    auto windows = ReadWindows(options.source, flags.calibration,
                               std::min(kCalibrationWindow, config->context), flags.tokens);
    if (!windows.ok()) return Fail(windows.status());
    options.calibration = *std::move(windows);
  }
  ValuesLine line(context);
  options.progress = line.progress();
  const absl::Status status = model::WriteQuantized(options);
  line.End();
  if (!status.ok()) return Fail(status);
  fmt::print(stderr, "{} is in {}\n", flags.weights, options.target);
  return kExitOk;
}

struct PackFlags {
  model::PackOptions options;
  std::string weights = "stored";
};

int Pack(const PackFlags& flags, const CliContext& context) {
  model::PackOptions options = flags.options;
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (name == flags.weights) options.precision = precision;
  }
  options.threads = device::UsableCores();
  ValuesLine line(context);
  options.progress = line.progress();
  const absl::StatusOr<model::PackedExperts> packed = model::PackExperts(options);
  line.End();
  if (!packed.ok()) return Fail(packed.status());
  fmt::print(stderr, "{} experts {} in {}: {}\n", packed->experts,
             packed->were_there ? "were already, whole and of these weights," : "are", options.file,
             ShowBytes(packed->bytes));
  return kExitOk;
}

struct PruneFlags {
  model::PruneOptions options;
  std::string calibration, held_out;
  double max_loss = -1;  // none
};

int Prune(const PruneFlags& flags, const CliContext& context) {
  const absl::StatusOr<PruneTexts> texts =
      ReadPruneTexts(flags.options.source, flags.calibration, flags.held_out, flags.options.window);
  if (!texts.ok()) return Fail(texts.status());
  model::PruneOptions options = flags.options;
  options.calibration = texts->calibration;
  options.held_out = texts->held_out;
  options.calibration_digest = texts->digest;
  options.threads = device::UsableCores();
  bool shown = false;
  if (context.err.interactive) {
    options.progress = [&shown](int64_t done, int64_t all) {
      shown = true;
      fmt::print(stderr, "\r{} of {} windows", done, all);
      std::fflush(stderr);
    };
  }
  const absl::StatusOr<model::Pruned> pruned = model::PruneExperts(options);
  if (shown) fmt::print(stderr, "\n");
  if (!pruned.ok()) return Fail(pruned.status());
  fmt::print("{}", RenderPruned(*pruned));
  if (flags.max_loss >= 0) {
    if (const absl::Status status = CheckLoss(*pruned, flags.max_loss); !status.ok()) return Fail(status);
  }
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
  fmt::print(stderr, "{} is in {}; the chart's values for it:\n", options.repository,
             (std::filesystem::path(options.folder) / options.file).string());
  fmt::print("{}", ChartValues(options, *pulled));
  return kExitOk;
}

}  // namespace

Command AddModel(CLI::App& root, const CliContext& context) {
  CLI::App* app = root.add_subcommand(
      "model", "Fetch a model, inspect its folder or file, quantize it, or prune or pack its experts");
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
  inspect
      ->add_option("--expert-memory", flags->expert_memories,
                   "Memory for experts for which to show how many of a mixture's are in it at once")
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
  pull->add_option("--file", pulling->options.file, "GGUF file to fetch, where that is the model")
      ->type_name("NAME.gguf");
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
      ->check(command_line::Unless(&model::WhyNothingIsAt));
  quantize->add_option("target", quantizing->options.target, "Folder to write; new")
      ->type_name("DIR")
      ->required();
  quantize->add_option("--weights", quantizing->weights, "Precision of matrices")
      ->check(CLI::IsMember({"int8", "int4"}))
      ->capture_default_str();
  CLI::Option* calibration = quantize
                                 ->add_option("--calibration", quantizing->calibration,
                                              "Text of the kind that the model is for, of which int4 then "
                                              "loses less (GPTQ); for dense models")
                                 ->type_name("FILE")
                                 ->check(CLI::ExistingFile);
  quantize->add_option("--tokens", quantizing->tokens, "Tokens of that text to take at most")
      ->type_name("N")
      ->check(CLI::Range(64, 1 << 20))
      ->capture_default_str()
      ->needs(calibration);
  quantize->add_flag("--portable", quantizing->options.portable,
                     "In a form that other programs read, which loses more (compressed-tensors)");
  CLI::App* prune = app->add_subcommand(
      "prune", "Write a copy of a mixture of experts without the experts that matter least for a text");
  prune->footer(kPruneExamples);
  auto pruning = std::make_shared<PruneFlags>();
  prune->add_option("source", pruning->options.source, "Model folder, not quantized")
      ->type_name("DIR")
      ->required()
      ->check(CLI::ExistingDirectory);
  prune->add_option("target", pruning->options.target, "Folder to write; new")->type_name("DIR")->required();
  prune->add_option("--calibration", pruning->calibration, "Text of the kind that the model is for")
      ->type_name("FILE")
      ->required()
      ->check(CLI::ExistingFile);
  prune->add_option("--keep", pruning->options.keep, "Part of the experts of each layer, and group, to keep")
      ->type_name("NUMBER")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  prune
      ->add_option("--held-out", pruning->held_out,
                   "Text to measure the loss on (default: every tenth window of the calibration text)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  prune
      ->add_option("--max-loss", pruning->max_loss,
                   "Fail if the loss on held-out text grows by more than this part of it")
      ->type_name("NUMBER")
      ->check(CLI::Range(0.0, 1000.0));
  prune->add_option("--window", pruning->options.window, "Tokens that are read together")
      ->type_name("TOKENS")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  CLI::App* pack = app->add_subcommand("pack", "Write the experts of a mixture to a file that workers read");
  pack->footer(kPackExamples);
  auto packing = std::make_shared<PackFlags>();
  pack->add_option("--model", packing->options.folder, "Model folder")
      ->type_name("DIR")
      ->required()
      ->check(command_line::Unless(&model::WhyNothingIsAt));
  pack->add_option("--out", packing->options.file, "File to write; one of other experts is replaced")
      ->type_name("FILE")
      ->required();
  std::vector<std::string> precisions;
  for (const auto& [name, precision] : model::WeightPrecisions()) precisions.emplace_back(name);
  pack->add_option("--weights", packing->weights, "Precision of matrices, as the workers' --weights")
      ->check(CLI::IsMember(precisions))
      ->capture_default_str();
  return {app, [inspect, quantize, prune, pack, flags, pulling, quantizing, pruning, packing, &context] {
            if (pack->parsed()) return Pack(*packing, context);
            if (inspect->parsed()) return Inspect(*flags, context);
            if (prune->parsed()) return Prune(*pruning, context);
            return quantize->parsed() ? Quantize(*quantizing, context) : PullModel(*pulling, context);
          }};
}

}  // namespace baton::cli
