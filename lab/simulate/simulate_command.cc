// `baton simulate`: policies side by side on a trace, with no machine but this one.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/exit_code.h"
#include "cli/lab_commands.h"
#include "cli/show/progress.h"
#include "cli/show/quantity.h"
#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/command_line/option_types.h"
#include "lab/commands.h"
#include "lab/simulate/measures.h"
#include "lab/simulate/plot.h"
#include "lab/simulate/policies_under_test.h"
#include "lab/simulate/report.h"

namespace baton::lab {
namespace {

using namespace simulate;

constexpr char kSimulateExamples[] = R"(
Examples:
  baton simulate --trace mooncake_conversation.jsonl
      every policy on the trace as it is, on 8 prefill and 6 decode workers
  baton simulate --trace conversation.jsonl --rates 8,10,12,14 --plot goodput.svg
      faster and faster: where does each policy stop keeping the SLO?
  baton simulate --trace conversation.jsonl --copies 4 --policies prefix_affinity --fleet fleet.json
      four times the users on the fleet that you have; --print-fleet shows what a fleet file can say
  baton simulate --trace conversation.jsonl --policies prefix_affinity --prefill-blocks 1000 --disk 0,100GiB,1TiB
      what would a disk of such a size for blocks be worth on each worker?
  baton simulate --trace conversation.jsonl --json result.json

A trace has one JSON object a line: timestamp (ms), input_length, output_length and hash_ids, one per 512 tokens.
The router's placement, prefix index and admission and the workers' queue and cache are the real code; times are a
model. The same --seed gives the same result. "bound" is one endless cache that all prefill workers share.)";

struct SimulateFlags {
  std::string trace;
  std::string fleet;
  bool print_fleet = false;
  std::vector<std::string> policies;
  std::vector<double> rates;
  int copies = 1;
  int64_t limit = 0;
  uint64_t seed = 1;
  int64_t prefill_blocks = 0;
  std::vector<std::string> disks;
  std::string slo_ttft = fmt::format("{}s", forecast::kDefaultSloTtft), slo_tpot = "50ms";
  std::string default_ttft;  // empty: as the router, which takes slo_ttft
  double tail_share = forecast::kDefaultTailShare;
  std::string json;
  std::string plot;
  std::string record;
};

absl::Status Write(const std::string& text, const std::string& path) {
  if (path == "-") {
    fmt::print("{}", text);
    return absl::OkStatus();
  }
  std::ofstream file(path);
  file << text;
  if (!file.flush()) return absl::ErrnoToStatus(errno, fmt::format("can't write {}", path));
  return absl::OkStatus();
}

std::string DescribeRefusals(absl::Duration default_ttft) {
  const double seconds = absl::ToDoubleSeconds(default_ttft);
  return seconds > 0
             ? fmt::format("refused: who is predicted to wait longer than {}", cli::ShowSeconds(seconds))
             : "no request is refused";
}

// A policy on a fleet: a row of the table.
struct Contestant {
  std::string label;
  FleetModel model;
  PolicyUnderTest under_test = {};
};

int Compare(const SimulateFlags& flags, const cli::CliContext& context) {
  FleetModel model;
  if (!flags.fleet.empty()) {
    absl::StatusOr<FleetModel> read = ReadFleetModel(flags.fleet);
    if (!read.ok()) return cli::Fail(read.status());
    model = *std::move(read);
  }
  if (flags.prefill_blocks > 0) model.prefill_blocks = flags.prefill_blocks;
  std::vector<Contestant> disks;  // one for each size of disk
  for (const std::string& size : flags.disks) {
    const auto bytes = cli::ParseBytes(size);
    if (!bytes.ok()) return cli::Misused(std::string(bytes.status().message()));
    disks.push_back({.label = *bytes > 0 ? ", disk " + size : ", no disk", .model = model});
    disks.back().model.disk_bytes = *bytes;
  }
  if (disks.empty()) disks.push_back({.label = "", .model = model});
  if (flags.print_fleet) {
    fmt::print("{}\n", ToJson(model));
    return cli::kExitOk;
  }
  if (flags.trace.empty()) return cli::Misused("--trace is required");
  const auto ttft = cli::ParseDuration(flags.slo_ttft), tpot = cli::ParseDuration(flags.slo_tpot);
  const auto default_ttft =
      cli::ParseDuration(flags.default_ttft.empty() ? flags.slo_ttft : flags.default_ttft);
  for (const auto& limit : {ttft, tpot, default_ttft}) {
    if (!limit.ok()) return cli::Misused(std::string(limit.status().message()));
  }
  const Slo slo = {.ttft = absl::ToDoubleSeconds(*ttft), .tpot = absl::ToDoubleSeconds(*tpot)};
  const auto targets = forecast::QueueTargets::For(slo.ttft, flags.tail_share);
  std::vector<Contestant> contestants;
  for (const std::string& name : flags.policies) {
    absl::StatusOr<PolicyUnderTest> under_test = FindPolicy(name, model, targets, slo.tpot);
    if (!under_test.ok()) return cli::Misused(std::string(under_test.status().message()));
    under_test->default_ttft = absl::ToDoubleSeconds(*default_ttft);
    for (const Contestant& disk : disks) {
      contestants.push_back({.label = name + disk.label, .model = disk.model, .under_test = *under_test});
    }
  }
  const absl::StatusOr<std::vector<bench::TraceEntry>> trace = bench::ReadTrace(flags.trace, flags.limit);
  if (!trace.ok()) return cli::Fail(trace.status());
  std::vector<double> rates = flags.rates;
  if (rates.empty()) rates.push_back(RateOf(*trace) * flags.copies);
  std::sort(rates.begin(), rates.end());

  if (!flags.record.empty() && (rates.size() != 1 || contestants.size() != 1)) {
    return cli::Misused("--record takes one rate, one of --policies and at most one --disk");
  }

  const MonotonicClock clock;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::vector<Curve> curves;
  for (const Contestant& contestant : contestants) curves.push_back({.name = contestant.label, .points = {}});
  for (const double rate : rates) {
    const Scale scale = {
        .speed = rate / (RateOf(*trace) * flags.copies), .copies = flags.copies, .seed = flags.seed};
    const std::vector<Request> load = MakeLoad(*trace, scale, model.block_tokens);
    const double ideal = IdealHitRate(load, model.block_tokens);
    std::vector<Measures> measured;
    for (size_t i = 0; i < contestants.size(); ++i) {
      const Contestant& contestant = contestants[i];
      cli::Progress progress(fmt::format("{} at {:g}/s", contestant.label, rate), std::ssize(load), stderr,
                             context.err, clock);
      Simulation simulation(contestant.model, contestant.under_test, load, flags.seed);
      const RunResult run = simulation.Run([&](int64_t ended) { progress.Update(ended); });
      if (!flags.record.empty()) {
        const absl::Status status = Write(RenderRequests(run), flags.record);
        if (!status.ok()) return cli::Fail(status);
      }
      measured.push_back(Measure(contestant.label, run, slo, model.block_tokens));
      curves[i].points.emplace_back(rate, measured.back().goodput);
      results.push_back(ToJson(measured.back()));
      results.back()["disk_bytes"] = contestant.model.disk_bytes;
    }
    if (flags.json != "-") {
      fmt::print("\n{} requests at {:.2f}/s; an endless cache would save {:.1f}% of prompt tokens; {}\n{}",
                 cli::ShowCount(std::ssize(load)), rate, 100 * ideal, DescribeRefusals(*default_ttft),
                 RenderTable(measured));
      std::fflush(stdout);
    }
  }
  if (!flags.json.empty()) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    json["commit"] = GetBuildInfo().commit;
    json["trace"] = flags.trace;
    json["copies"] = flags.copies;
    json["seed"] = flags.seed;
    json["default_ttft_deadline_seconds"] = absl::ToDoubleSeconds(*default_ttft);
    json["tail_share"] = flags.tail_share;
    json["slo"] = {{"ttft_seconds", slo.ttft}, {"tpot_seconds", slo.tpot}};
    json["fleet"] = nlohmann::ordered_json::parse(ToJson(model));
    json["results"] = results;
    if (const absl::Status status = Write(json.dump(2) + "\n", flags.json); !status.ok())
      return cli::Fail(status);
  }
  if (!flags.plot.empty()) {
    const std::string svg =
        PlotSvg(fmt::format("Goodput: TTFT < {}, TPOT < {}", flags.slo_ttft, flags.slo_tpot),
                "requests per second", "of them within the SLO, per second", curves);
    if (const absl::Status status = Write(svg, flags.plot); !status.ok()) return cli::Fail(status);
  }
  return cli::kExitOk;
}

}  // namespace

cli::Command AddSimulate(CLI::App& root, const cli::CliContext& context) {
  CLI::App* app = root.add_subcommand(cli::kSimulate.name, cli::kSimulate.description);
  app->footer(kSimulateExamples);
  auto flags = std::make_shared<SimulateFlags>();
  flags->policies = PolicyNames();
  app->add_option("--trace", flags->trace, "Requests, one JSON object a line")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app->add_option("--fleet", flags->fleet, "The machines, as JSON; fields left out keep their defaults")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app->add_flag("--print-fleet", flags->print_fleet, "Print the machines as JSON and end");
  app->add_option("--policies", flags->policies, "Which to compare")
      ->delimiter(',')
      ->type_name("NAMES")
      ->capture_default_str();
  app->add_option("--rates", flags->rates, "Requests per second; by default the trace's own")
      ->delimiter(',')
      ->type_name("R,R,...")
      ->check(CLI::Range(1e-3, 1e6));
  app->add_option("--copies", flags->copies, "So many times the users, with prompts of their own")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--limit", flags->limit, "Only the first so many requests; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--prefill-blocks", flags->prefill_blocks,
                  "Cache of a prefill worker, instead of the fleet's")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--disk", flags->disks,
                  "Compare disks of these sizes for blocks on every worker, instead of the fleet's; 0: none")
      ->delimiter(',')
      ->type_name("SIZE,SIZE,...");
  app->add_option("--seed", flags->seed, "Arrivals within a bucket, and choices between equals")
      ->type_name("N")
      ->transform(command_line::WholeNumber())
      ->capture_default_str();
  app->add_option("--slo-ttft", flags->slo_ttft,
                  "A good request's time to first token; our queues are ordered by it")
      ->type_name("TIME")
      ->capture_default_str();
  app->add_option(
         "--tail-share", flags->tail_share,
         "Our queues, as --tail-share of routers and prefill workers: 0 for goodput, 1 for long prompts")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--slo-tpot", flags->slo_tpot, "A good request's time per token after it")
      ->type_name("TIME")
      ->capture_default_str();
  app->add_option(
         "--default-ttft-deadline", flags->default_ttft,
         "Refuse at once what is predicted to take longer to its first token, as the router does; 0: "
         "none. Default: --slo-ttft, as the router's")
      ->type_name("TIME");
  app->add_option("--json", flags->json, "Write the results as JSON; - is standard output")
      ->type_name("FILE");
  app->add_option("--record", flags->record,
                  "Write each request and the phases of its TTFT, one JSON object a line")
      ->type_name("FILE");
  app->add_option("--plot", flags->plot, "Write goodput against rate as SVG")->type_name("FILE");
  return {app, [flags, &context] { return Compare(*flags, context); }};
}

}  // namespace baton::lab
