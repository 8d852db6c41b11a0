// `baton eval`: what a lossy feature costs a model in quality, measured, as a gate file that allows it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/commands.h"
#include "cli/eval/reuse_eval.h"
#include "cli/exit_code.h"
#include "cli/show/print.h"
#include "common/command_line/option_types.h"
#include "common/model/config/model_path.h"

namespace baton::cli {
namespace {

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

int RunEval(EvalFlags& flags, const CliContext& context) {
  const auto questions = ReadReuseQuestions(flags.questions);
  if (!questions.ok()) return Fail(questions.status());
  if (context.err.interactive) {
    flags.eval.progress = [](int64_t done, int64_t all) {
      fmt::print(stderr, "\r{} of {} questions", done, all);
      if (done == all) fmt::print(stderr, "\n");
    };
  }
  auto result = EvaluateReuse(*questions, flags.eval);
  if (!result.ok()) return Fail(result.status());
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
    if (!file) return Fail(fmt::format("{}: can't be written", flags.out));
  }
  if (const absl::Status allowed = result->gate.CheckLimits(); !allowed.ok()) return Fail(allowed);
  return kExitOk;
}

}  // namespace

Command AddEval(CLI::App& root, const CliContext& context) {
  CLI::App* eval = root.add_subcommand("eval", "Measure what a lossy feature costs a model in quality");
  eval->require_subcommand(1);
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
  command_line::AddChoice(
      *app, "--key-dtype", engine.key_dtype, dtypes,
      "Precision of keys in the KV cache, as the workers' (default: bf16, f32 with matrices of f32)");
  command_line::AddChoice(
      *app, "--value-dtype", engine.value_dtype, dtypes,
      "Precision of values in the KV cache, as the workers' (default: bf16, f32 with matrices of f32)");
  command_line::AddChoice(*app, "--weights", engine.weights, model::WeightPrecisions(),
                          "Precision of matrices, as the workers'");
  return {eval, [flags, &context] { return RunEval(*flags, context); }};
}

}  // namespace baton::cli
