// `baton bench`: asks a server for much, and says how it did.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/chat/interrupt.h"
#include "cli/exit_code.h"
#include "cli/lab_commands.h"
#include "cli/show/print.h"
#include "cli/show/progress.h"
#include "cli/show/quantity.h"
#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "lab/bench/bench_flags.h"
#include "lab/bench/engine_command.h"
#include "lab/bench/profiler.h"
#include "lab/bench/report.h"
#include "lab/commands.h"

namespace baton::lab {
namespace {

using bench::BenchFlags;
using bench::BenchPlan;

constexpr char kBenchExamples[] = R"(
Examples:
  baton bench --concurrency 8 --requests 200
      closed loop: 8 at any time
  baton bench --rate 5 --duration 1m --slo-ttft 500ms --slo-tpot 50ms
      open loop: Poisson arrivals; goodput under these limits
  baton bench --prompt-tokens lognormal:400:0.8 --output-tokens uniform:16:128
  baton bench --shared-prefix-tokens 512 --prefix-groups 4 --turns 3 --think uniform:0:2
      conversations that share system prompts
  baton bench --trace mooncake_conversation.jsonl --trace-speed 2 --trace-limit 500 --trace-scale-lengths fit
  baton bench --prompt-tokens uniform:32:1500 --rate 5 --requests 300 --profile fleet.json
      how fast the workers are, for `baton plan --profile` and `baton simulate --fleet`
  baton bench --model models/small -c 4 --json result.json
      no server: the whole relay in one process

Latencies are measured here, from when a request was meant to be sent. Prompts are random token ids; the same --seed
asks for the same. Ctrl-C ends the run early, with a report.)";

// Every flag with its value, as given or by default.
nlohmann::ordered_json Settings(const CLI::App& app) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().empty() ? "" : option->get_lnames().front();
    if (name.empty() || name == "help" || name == "help-all") continue;
    if (option->count() > 0) {
      settings[name] = absl::StrJoin(option->results(), ",");
    } else if (!option->get_default_str().empty()) {
      settings[name] = option->get_default_str();
    }
  }
  return settings;
}

absl::Status WriteJson(const nlohmann::ordered_json& json, const std::string& path) {
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (path == "-") {
    return cli::Put(text + "\n");
  }
  std::ofstream file(path);
  file << text << '\n';
  if (!file.flush()) return absl::ErrnoToStatus(errno, fmt::format("can't write {}", path));
  return absl::OkStatus();
}

absl::StatusOr<v1::ModelInfo> ChooseModel(cli::InferenceClient& client, const std::string& name) {
  absl::StatusOr<v1::ListModelsResponse> models = client.ListModels();
  if (!models.ok()) return models.status();
  std::vector<std::string> names;
  for (const v1::ModelInfo& model : models->models()) {
    if (name.empty() || model.name() == name) return model;
    names.push_back(model.name());
  }
  return absl::NotFoundError(fmt::format("{} has no model{}; it has: {}", client.address(),
                                         name.empty() ? "" : fmt::format(" \"{}\"", name),
                                         absl::StrJoin(names, ", ")));
}

// One run, with its progress on standard error.
bench::RunResult RunShown(const std::string& label, const bench::RunSettings& settings, int64_t expected,
                          bench::Workload& workload, bench::LoadClient& client, bench::Recorder& recorder,
                          const Clock& clock, const cli::Terminal& terminal) {
  const bool timed = settings.duration != absl::InfiniteDuration();
  const int64_t total = timed ? absl::ToInt64Seconds(settings.duration) : expected;
  const absl::Time start = clock.Now();
  cli::Progress progress(timed ? label + " (s)" : label, total, stderr, terminal, clock);
  return bench::RunLoad(settings, workload, client, clock, recorder, [&](const bench::RunState& state) {
    const int64_t elapsed = absl::ToInt64Seconds(clock.Now() - start);
    std::string note = fmt::format("{} in flight", cli::ShowCount(state.in_flight));
    if (timed) note += fmt::format(", {} done", cli::ShowCount(state.done));
    if (recorder.summary().failed > 0)
      note += fmt::format(", {} failed", cli::ShowCount(recorder.summary().failed));
    progress.Update(timed ? std::min(elapsed, total) : state.done, note);
  });
}

int RunBench(const BenchFlags& flags, const CLI::App& app, const cli::CliContext& context) {
  if (const absl::Status status = bench::CheckFlags(flags); !status.ok()) {
    return cli::Misused(std::string(status.message()));
  }
  const cli::Interrupt interrupt;
  absl::StatusOr<cli::Target> target = cli::Reach(flags.target, interrupt.fd(), context);
  if (!target.ok()) return cli::Fail(target.status());
  const absl::StatusOr<v1::ModelInfo> model = ChooseModel(*target->client, flags.target.model_name);
  if (!model.ok()) return cli::Fail(model.status());
  absl::StatusOr<BenchPlan> plan = bench::MakePlan(flags, *model);
  if (!plan.ok()) return cli::Fail(plan.status());
  plan->run.interrupt_fd = interrupt.fd();
  plan->warmup_run.interrupt_fd = interrupt.fd();

  cli::Tell("{} at {}: context {}, vocabulary {}, {} prefill and {} decode worker(s)\n", model->name(),
            target->client->address(), cli::ShowCount(model->context_tokens()),
            cli::ShowCount(model->vocabulary_tokens()), model->ready_prefill_workers(),
            model->ready_decode_workers());
  for (const std::string& note : plan->notes) cli::Tell("{}\n", note);
  const MonotonicClock clock;
  bench::LoadClient client(target->client->address(), flags.connections, clock, target->security.get());
  if (plan->warmup != nullptr) {
    bench::Recorder unmeasured(plan->recorder);
    const bench::RunResult warmup = RunShown("warming up", plan->warmup_run, flags.warmup, *plan->warmup,
                                             client, unmeasured, clock, context.err);
    if (warmup.interrupted) return cli::Fail("interrupted while warming up");
  }
  bench::Profiler profiler(static_cast<int>(model->ready_prefill_workers()),
                           static_cast<int>(model->ready_decode_workers()));
  std::ofstream lines;
  const auto no_record = [&] {
    return cli::Fail(absl::ErrnoToStatus(errno, fmt::format("--record: can't write {}", flags.record)));
  };
  if (!flags.record.empty()) {
    lines.open(flags.record);
    if (!lines) return no_record();
  }
  if (!flags.profile.empty() || !flags.record.empty()) {
    plan->run.debug = true;  // the router's predictions
    plan->recorder.succeeded = [&](const bench::RequestRecord& record) {
      profiler.Add(record);
      if (!flags.record.empty()) lines << bench::RequestToJson(record).dump() << '\n';
    };
  }
  bench::Recorder recorder(plan->recorder);
  const std::string time = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  const bench::RunResult result = RunShown("measuring", plan->run, plan->expected_requests, *plan->workload,
                                           client, recorder, clock, context.err);

  const bench::Summary& summary = recorder.summary();
  if (flags.json != "-") {
    cli::Print(stdout, "\n{}", bench::RenderReport(summary, plan->recorder.slo, context.out));
    std::fflush(stdout);
  }
  if (!flags.json.empty()) {
    bench::Provenance provenance;
    provenance.machine = bench::ThisMachine();
    provenance.commit = GetBuildInfo().commit;
    provenance.time = time;
    provenance.server = target->client->address();
    provenance.model = model->name();
    provenance.context_tokens = model->context_tokens();
    provenance.seed = flags.seed;
    provenance.asked = result.asked;
    provenance.interrupted = result.interrupted;
    const absl::Status status =
        WriteJson(bench::ReportToJson(summary, plan->recorder.slo, provenance, Settings(app)), flags.json);
    if (!status.ok()) return cli::Fail(status);
  }
  if (!flags.profile.empty()) {
    const absl::StatusOr<nlohmann::ordered_json> profile = profiler.Fit();
    if (!profile.ok()) return cli::Fail(profile.status());
    if (const absl::Status status = WriteJson(*profile, flags.profile); !status.ok())
      return cli::Fail(status);
  }
  if (!flags.record.empty() && !lines.flush()) return no_record();
  if (result.interrupted) return cli::Fail("interrupted: the report covers what was done until then");
  if (summary.succeeded == 0) return cli::Fail("no request succeeded");
  return cli::kExitOk;
}

}  // namespace

cli::Command AddBench(CLI::App& root, const cli::CliContext& context) {
  CLI::App* app = root.add_subcommand(cli::kBench.name, cli::kBench.description);
  app->footer(kBenchExamples);
  auto flags = std::make_shared<BenchFlags>();
  flags->AddTo(*app);
  const cli::Command engine = AddBenchEngine(*app, context);
  return {app, [flags, app, engine, &context] {
            return engine.app->parsed() ? engine.run() : RunBench(*flags, *app, context);
          }};
}

}  // namespace baton::lab
