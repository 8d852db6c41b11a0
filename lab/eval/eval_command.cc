// `baton eval`: the cost in quality of precisions of weights and KV, and of chunk reuse, measured; of the
// latter as a gate file that allows it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/exit_code.h"
#include "cli/lab_commands.h"
#include "cli/show/live_line.h"
#include "cli/show/print.h"
#include "cli/text/text_windows.h"
#include "common/base/build_info.h"
#include "common/command_line/option_types.h"
#include "engine/device/thread_pool.h"
#include "lab/bench/machine.h"
#include "lab/commands.h"
#include "lab/eval/precision_report.h"
#include "lab/eval/reuse_eval.h"
#include "text/config/config.h"
#include "text/config/model_path.h"

namespace baton::lab {
namespace {

constexpr char kPrecisionExamples[] = R"(
Examples:
  baton eval --model models/baton-tiny --text models/baton-tiny/eval/recall.jsonl
      what each precision of weights and KV costs against the model as stored, and how fast it is here
  baton eval --model /srv/llama-3.2-1b --text code.txt --max-kl 0.001 --json precisions.json
  baton eval --model /srv/llama-3.2-1b-int4 --reference /srv/llama-3.2-1b --text code.txt
      what a quantized folder has lost

Text of the kind that the model is for, and that it was not trained on, tells most. Other work on the machine falsifies
the speeds. Two copies of the model are in memory at a time, one of them in float32 at the row f32. "stored" is as the
workers compute it without --weights: matrices of BF16 round activations to BF16, which the row f32 does not.)";

constexpr char kEvalExamples[] = R"(
Examples:
  baton eval chunk-reuse --model models/baton-tiny \
      --questions models/baton-tiny/eval/documents.jsonl --out tiny.gate.json
      asks each question twice, with documents reused and with full prefill
  baton serve --model models/baton-tiny --chunk-reuse tiny.gate.json
      starts with it, if no figure is beyond the limit that the file states)";

struct EvalFlags {
  ReuseEvalOptions eval;
  worker::ChunkGate::Limits limits{.kl = 0.2, .exact_match = 0.5, .recall_loss = 0.03};
  std::string questions;
  std::string out;
};

int RunEval(EvalFlags& flags, const cli::CliContext& context) {
  const auto questions = ReadReuseQuestions(flags.questions);
  if (!questions.ok()) return cli::Fail(questions.status());
  if (context.err.interactive) {
    flags.eval.progress = [](int64_t done, int64_t all) {
      fmt::print(stderr, "\r{} of {} questions", done, all);
      if (done == all) fmt::print(stderr, "\n");
    };
  }
  auto result = EvaluateReuse(*questions, flags.eval);
  if (!result.ok()) return cli::Fail(result.status());
  result->gate.limits = flags.limits;
  const worker::ChunkGate::Measured& measured = result->gate.measured;
  fmt::print(
      "questions           {}\n"
      "prompt tokens       {} in the mean, {:.0f}% of them reused\n"
      "divergence          {:.4f} nats (limit {:g})\n"
      "same answers        {:.1f}% (limit {:g}%)\n"
      "right, full prefill {:.1f}%\n"
      "right, reused       {:.1f}% (limit {:.1f}%)\n",
      measured.questions, result->prompt_tokens / measured.questions,
      100.0 * static_cast<double>(result->approximate_tokens) / static_cast<double>(result->prompt_tokens),
      measured.kl, flags.limits.kl, 100 * measured.exact_match, 100 * flags.limits.exact_match,
      100 * measured.recall_full, 100 * measured.recall_reused,
      100 * (measured.recall_full - flags.limits.recall_loss));
  if (!flags.out.empty()) {
    std::ofstream file(flags.out, std::ios::trunc);
    file << result->gate.ToJson();
    file.close();
    if (!file) return cli::Fail(fmt::format("{}: can't be written", flags.out));
  }
  if (const absl::Status allowed = result->gate.CheckLimits(); !allowed.ok()) return cli::Fail(allowed);
  return cli::kExitOk;
}

struct PrecisionFlags {
  PrecisionEvalOptions options;
  std::string text, json;
  int64_t window = 2048, tokens = 4096;
};

std::string FileName(const std::string& path) {
  return std::filesystem::weakly_canonical(path).filename().string();
}

int RunPrecisions(const PrecisionFlags& flags, const cli::CliContext& context) {
  PrecisionEvalOptions options = flags.options;
  if (options.engine.model_folder.empty() || flags.text.empty()) {
    return cli::Misused(
        "eval takes --model and --text, or the name of another evaluation: see baton eval --help");
  }
  bench::Provenance provenance;
  provenance.machine = bench::ThisMachine();
  provenance.commit = GetBuildInfo().commit;
  provenance.time = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  provenance.model = FileName(options.engine.model_folder);
  const auto config = model::ModelConfig::Load(options.engine.model_folder);
  if (!config.ok()) return cli::Fail(config.status());
  const int64_t window = std::min(flags.window, config->context);
  const auto windows = cli::ReadWindows(options.engine.model_folder, flags.text, window, flags.tokens);
  if (!windows.ok()) return cli::Fail(windows.status());
  if (!options.reference.empty()) {
    const auto same = cli::ReadWindows(options.reference, flags.text, window, flags.tokens);
    if (!same.ok()) return cli::Fail(same.status());
    if (*same != *windows) {
      return cli::Fail(
          fmt::format("the tokenizer of {} makes other tokens of {}: compare models that share one",
                      options.reference, flags.text));
    }
  }
  absl::StatusOr<PrecisionEval> eval;
  {
    cli::LiveLine line(context.err);
    options.progress = [&line](const std::string& what) { line.Set(what); };
    eval = EvaluatePrecisions(*windows, options);
  }
  if (!eval.ok()) return cli::Fail(eval.status());
  const PrecisionReport report = {
      .eval = *eval,
      .provenance = provenance,
      .reference = options.reference.empty() ? "itself" : FileName(options.reference),
      .text = FileName(flags.text),
      .threads = options.engine.threads > 0 ? options.engine.threads : device::UsableCores(),
      .max_kl = options.max_kl};
  if (flags.json != "-") cli::Print(stdout, "{}", RenderPrecisions(report));
  if (!flags.json.empty()) {
    const std::string json = PrecisionsToJson(report).dump(2);
    if (flags.json == "-") {
      cli::Print(stdout, "{}\n", json);
    } else {
      std::ofstream file(flags.json, std::ios::trunc);
      file << json << '\n';
      file.close();
      if (!file) return cli::Fail(fmt::format("{}: can't be written", flags.json));
    }
  }
  if (eval->recommended.has_value()) return cli::kExitOk;
  return cli::Fail(fmt::format("no precision is within --max-kl {:g}", options.max_kl));
}

void AddPrecisionFlags(CLI::App& app, PrecisionFlags& flags) {
  PrecisionEvalOptions& options = flags.options;
  app.add_option("--model", options.engine.model_folder, "Model folder or GGUF file (required)")
      ->type_name("DIR")
      ->check(command_line::Unless(&model::WhyNothingIsAt));
  app.add_option("--text", flags.text, "Text over which the model's predictions are compared (required)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option("--reference", options.reference,
                 "Model that is compared with, as stored and with KV in f32 (default: the model itself)")
      ->type_name("DIR")
      ->check(command_line::Unless(&model::WhyNothingIsAt));
  app.add_option("--max-kl", options.max_kl, "Most nats of mean KL divergence of what is recommended")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--window", flags.window, "Tokens that are read as one text; the model's context at most")
      ->type_name("N")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--tokens", flags.tokens, "Tokens of the file to take at most")
      ->type_name("N")
      ->check(CLI::Range(64, 1 << 24))
      ->capture_default_str();
  app.add_option("--backend", options.engine.backend, "Kernels to compute with")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str();
  app.add_option("--threads", options.engine.threads, "Threads to compute with; 0 takes all cores")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "Of which the median speeds are shown")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", flags.json,
                 "Write the figures to this file; - writes them alone, to standard output")
      ->type_name("FILE");
}

}  // namespace

cli::Command AddEval(CLI::App& root, const cli::CliContext& context) {
  CLI::App* eval = root.add_subcommand(cli::kEval.name, cli::kEval.description);
  eval->require_subcommand(0, 1);
  eval->footer(kPrecisionExamples);
  auto precisions = std::make_shared<PrecisionFlags>();
  AddPrecisionFlags(*eval, *precisions);
  CLI::App* app = eval->add_subcommand(
      "chunk-reuse",
      "Compare reuse of documents with full prefill, and write the gate file of --chunk-reuse");
  app->footer(kEvalExamples);
  auto flags = std::make_shared<EvalFlags>();
  engine::EngineOptions& engine = flags->eval.engine;
  app->add_option("--model", engine.model_folder, "Model folder in Hugging Face form, or a GGUF file")
      ->required()
      ->type_name("DIR")
      ->check(command_line::Unless(&model::WhyNothingIsAt));
  app->add_option(
         "--questions", flags->questions,
         "Questions about documents: a JSON object in each line, with messages (role, and content or "
         "parts of text, which may be reusable) and expected, the words of a right answer")
      ->required()
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app->add_option("--out", flags->out, "Where the gate file goes (default: none is written)")
      ->type_name("FILE");
  app->add_option("--max-kl", flags->limits.kl,
                  "Most nats by which the distributions of tokens may diverge in the mean")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--min-exact-match", flags->limits.exact_match,
                  "Least share of answers that are the same, token for token")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--max-recall-loss", flags->limits.recall_loss,
                  "Most that the share of right answers may lose against full prefill")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--most", flags->eval.most_questions, "Ask so many of the questions; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--max-tokens", flags->eval.max_tokens, "Tokens of an answer at most")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app->add_option("--backend", engine.backend, "Kernels to compute with")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str();
  app->add_option("--threads", engine.threads, "Threads to compute with; 0 takes all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  engine.kv_bytes = engine::EngineOptions::kHostKvBytes;
  app->add_option("--kv-memory", *engine.kv_bytes, "Memory for KV blocks")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->default_str(command_line::SizeText(*engine.kv_bytes));
  const std::vector<std::pair<std::string, tensor::DType>> dtypes = {{"f32", tensor::DType::kF32},
                                                                     {"bf16", tensor::DType::kBF16},
                                                                     {"i8", tensor::DType::kI8},
                                                                     {"i4", tensor::DType::kI4}};
  command_line::AddChoice(*app, "--key-dtype", engine.key_dtype, dtypes,
                          "Precision of keys in the KV cache, as the workers' (default: bf16, or f32 if "
                          "matrices are multiplied in f32)");
  command_line::AddChoice(*app, "--value-dtype", engine.value_dtype, dtypes,
                          "Precision of values in the KV cache, as the workers' (default: bf16, or f32 if "
                          "matrices are multiplied in f32)");
  command_line::AddChoice(*app, "--weights", engine.weights, model::WeightPrecisions(),
                          "Precision of matrices, as the workers'");
  return {
      eval, [flags, precisions, app, eval, &context] {
        if (!app->parsed()) return RunPrecisions(*precisions, context);
        for (const CLI::Option* option : eval->get_options()) {
          if (option->count() > 0) {
            return cli::Misused(fmt::format(
                "{} stands before chunk-reuse, which it does not reach: put it behind", option->get_name()));
          }
        }
        return RunEval(*flags, context);
      }};
}

}  // namespace baton::lab
