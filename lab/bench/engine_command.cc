#include "lab/bench/engine_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/time/clock.h"
#include "cli/exit_code.h"
#include "cli/show/live_line.h"
#include "cli/show/print.h"
#include "common/base/build_info.h"
#include "common/command_line/option_types.h"
#include "lab/bench/engine_bench.h"
#include "lab/bench/engine_report.h"
#include "worker/flags.h"

namespace baton::lab {
namespace {

constexpr char kEngineExamples[] = R"(
Examples:
  baton bench engine --model models/small
  baton bench engine --model models/small --weights int8 --prompt-tokens 512,8192 --batch 1,16 --depth 4096
  baton bench engine --model models/small --json engine.json
  baton bench engine --model /srv/llama-3.1-8b --backend cuda --prompt-tokens 2048,8192 --batch 1,64 --depth 1024

No server, no relay: the engine alone in this process, of random tokens. Other work on the machine falsifies it.)";

struct EngineFlags {
  bench::EngineBenchOptions options;
  std::string json;
};

int RunEngine(const EngineFlags& flags, const cli::CliContext& context) {
  bench::EngineBenchOptions options = flags.options;
  for (const std::vector<int>* lengths : {&options.prompts, &options.batches, &options.depths}) {
    if (std::ranges::any_of(*lengths, [](int length) { return length < 1; })) {
      return cli::Misused("--prompt-tokens, --batch and --depth are at least 1");
    }
  }
  std::string weights;
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (precision == options.engine.weights) weights = name;
  }
  bench::Provenance provenance;
  provenance.machine = bench::ThisMachine();
  provenance.commit = GetBuildInfo().commit;
  provenance.time = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  provenance.model = std::filesystem::weakly_canonical(options.engine.model_folder).filename().string();
  absl::StatusOr<bench::EngineBenchResult> result;
  {
    cli::LiveLine line(context.err);
    options.progress = [&line](const std::string& what) { line.Set(what); };
    result = bench::RunEngineBench(options);
  }
  if (!result.ok()) return cli::Fail(result.status());
  if (flags.json != "-") cli::Print(stdout, "{}", bench::RenderEngineReport(*result, weights, provenance));
  if (flags.json.empty()) return cli::kExitOk;
  const std::string json = bench::EngineReportToJson(*result, weights, provenance).dump(2);
  if (flags.json == "-") {
    cli::Print(stdout, "{}\n", json);
    return cli::kExitOk;
  }
  std::ofstream file(flags.json);
  file << json << '\n';
  return file.flush() ? cli::kExitOk : cli::Fail(fmt::format("can't write {}", flags.json));
}

}  // namespace

cli::Command AddBenchEngine(CLI::App& bench, const cli::CliContext& context) {
  CLI::App* app = bench.add_subcommand("engine", "Measure the engine alone, beside what this machine can do");
  app->footer(kEngineExamples);
  auto flags = std::make_shared<EngineFlags>();
  bench::EngineBenchOptions& options = flags->options;
  app->add_option("--model", options.engine.model_folder, "Model folder or GGUF file")
      ->type_name("DIR")
      ->required();
  worker::AddComputeFlags(*app, options.engine);
  app->add_option("--threads", options.engine.threads, "Threads to compute with; 0 takes all cores")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  const auto list = [app](const char* name, std::vector<int>& values, const char* what) {
    command_line::AddNumbers(*app, name, values, what);
  };
  list("--prompt-tokens", options.prompts, "Lengths of prompts, as 128,512,2048 (the default)");
  list("--batch", options.batches, "Sequences of a decode step, as 1,4,8,16 (the default)");
  list("--depth", options.depths, "Tokens that each of them has already, as 128,1024 (the default)");
  app->add_option("--chunk-tokens", options.chunk_tokens, "Rows of a step of a prompt at most")
      ->type_name("N")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app->add_option("--repetitions", options.repetitions, "Of which the medians are shown")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--json", flags->json,
                  "Write the figures to this file; - writes them alone, to standard output")
      ->type_name("FILE");
  return {app, [flags, &context] { return RunEngine(*flags, context); }};
}

}  // namespace baton::lab
