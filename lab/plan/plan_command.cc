// `baton plan`: how many prefill and decode workers a load needs, with the reasoning.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/exit_code.h"
#include "cli/lab_commands.h"
#include "cli/show/quantity.h"
#include "lab/commands.h"
#include "lab/plan/capacity.h"

namespace baton::lab {
namespace {

using plan::Load;
using plan::Pools;
using plan::Profile;

constexpr char kPlanExamples[] = R"(
Examples:
  baton plan --profile deploy/profiles/baton-tiny-cpu.json --rate 20 --kv-memory 1GiB
      with the profile that ships in the source: the small model on a CPU
  baton bench --prompt-tokens uniform:32:1500 --rate 5 --requests 300 --profile fleet.json
      measures a profile of your own workers
  baton plan --profile fleet.json --rate 50 --prompt-tokens lognormal:2000:0.8 --output-tokens 300 \
      --hit-rate 0.6 --slo-ttft 1s --slo-tpot 40ms --kv-memory 40GiB --spare 2

A profile is JSON: prefill_base, prefill_token, prefill_pair, step_base, step_sequence, step_context (seconds),
kv_bytes_per_token, and, if the link was measured, link_bandwidth (bytes per second) and link_latency (seconds).
deploy/runbook.md says what they mean.)";

struct PlanFlags {
  std::string profile;
  double rate = 0;
  std::string prompt_tokens = "256";
  std::string output_tokens = "64";
  double hit_rate = 0;
  double disk_hit_rate = 0;
  std::string disk_bandwidth = "2GB";
  std::string slo_ttft = "2s";
  std::string slo_tpot = "50ms";
  std::string kv_memory;
  int spare = 1;
  bool json = false;
};

void PrintPlan(const PlanFlags& flags, const Profile& profile, const Load& load, const Pools& pools,
               const cli::Terminal& terminal) {
  const auto& prefill = pools.prefill;
  const auto& decode = pools.decode;
  fmt::print("{} prefill, {} decode worker(s)\n\n",
             cli::Paint(terminal, cli::Style::kBold, fmt::to_string(prefill.workers)),
             cli::Paint(terminal, cli::Style::kBold, fmt::to_string(decode.workers)));
  fmt::print(
      "load      {:g} requests/s; {:.0f} prompt tokens to compute and {:.0f} to generate each, {:.0f}% of "
      "prompts cached\n",
      load.rate, pools.uncached_mean, pools.output_mean, 100 * (load.hit_rate + load.disk_hit_rate));
  fmt::print("prefill   a prompt takes {} (95%: {}); {} worker(s) are {:.0f}% busy\n",
             cli::ShowSeconds(prefill.seconds_mean), cli::ShowSeconds(prefill.seconds_p95),
             prefill.workers - load.spare, 100 * prefill.utilization);
  const std::string read =
      load.disk_hit_rate > 0 ? fmt::format("read {} + ", cli::ShowSeconds(pools.disk_seconds)) : "";
  const std::string ship = profile.link_bandwidth.has_value()
                               ? fmt::format("ship {} + ", cli::ShowSeconds(pools.ship_seconds))
                               : "";
  fmt::print("          TTFT 95%: wait {} + {}compute {} + {}step {} = {} of {}\n",
             cli::ShowSeconds(prefill.wait_p95), read, cli::ShowSeconds(prefill.seconds_p95), ship,
             cli::ShowSeconds(decode.tpot), cli::ShowSeconds(prefill.ttft_p95), flags.slo_ttft);
  fmt::print(
      "decode    {} worker(s) run {:.1f} sequences each of {:.0f} tokens: TPOT {} of {}, KV {:.0f}% of {}\n",
      decode.workers - load.spare, decode.batch, pools.context_mean, cli::ShowSeconds(decode.tpot),
      flags.slo_tpot, 100 * decode.kv_used, cli::ShowBytes(load.kv_bytes));
  fmt::print("          maximum: {:.0f} by TPOT, {:.0f} by KV memory ({} per token); {} decides\n",
             decode.batch_by_tpot, decode.batch_by_kv, cli::ShowBytes(profile.kv_bytes_per_token),
             decode.bound_by_kv ? "KV memory" : "TPOT");
  if (profile.link_bandwidth.has_value()) {
    fmt::print("link      {}/s out of a prefill worker, {:.0f}% of {}/s\n",
               cli::ShowBytes(static_cast<int64_t>(pools.ship_rate)), 100 * pools.link_used,
               cli::ShowBytes(static_cast<int64_t>(*profile.link_bandwidth)));
  } else {
    fmt::print(
        "link      not measured, and left out: {}/s out of a prefill worker. Measure it: `baton bench "
        "--profile` with more prompts, of different lengths; or set link_bandwidth\n",
        cli::ShowBytes(static_cast<int64_t>(pools.ship_rate)));
  }
  if (load.disk_hit_rate > 0) {
    fmt::print("disk      {}/s from that of a prefill worker, {:.0f}% of {}/s\n",
               cli::ShowBytes(static_cast<int64_t>(pools.disk_rate)), 100 * pools.disk_used,
               cli::ShowBytes(static_cast<int64_t>(load.disk_bandwidth)));
  }
  fmt::print("spare     {} of each pool is for a rollout or a failure (--spare)\n", load.spare);
  fmt::print("\nHelm: --set prefill.replicas={} --set decode.replicas={}\n", prefill.workers, decode.workers);
}

std::string ToJson(const Profile& profile, const Pools& pools) {
  const nlohmann::ordered_json used =
      profile.link_bandwidth.has_value() ? nlohmann::ordered_json(pools.link_used) : nullptr;
  const nlohmann::ordered_json json = {{"prefill_workers", pools.prefill.workers},
                                       {"decode_workers", pools.decode.workers},
                                       {"prefill",
                                        {{"seconds_mean", pools.prefill.seconds_mean},
                                         {"seconds_p95", pools.prefill.seconds_p95},
                                         {"utilization", pools.prefill.utilization},
                                         {"wait_p95", pools.prefill.wait_p95},
                                         {"ttft_p95", pools.prefill.ttft_p95}}},
                                       {"decode",
                                        {{"batch", pools.decode.batch},
                                         {"tpot", pools.decode.tpot},
                                         {"kv_used", pools.decode.kv_used},
                                         {"batch_by_tpot", pools.decode.batch_by_tpot},
                                         {"batch_by_kv", pools.decode.batch_by_kv}}},
                                       {"link", {{"bytes_per_second", pools.ship_rate}, {"used", used}}},
                                       {"disk",
                                        {{"bytes_per_second", pools.disk_rate},
                                         {"used", pools.disk_used},
                                         {"seconds_p95", pools.disk_seconds}}}};
  return json.dump(2);
}

int RunPlan(const PlanFlags& flags, const cli::CliContext& context) {
  Load load;
  load.rate = flags.rate;
  load.hit_rate = flags.hit_rate;
  load.disk_hit_rate = flags.disk_hit_rate;
  if (load.hit_rate + load.disk_hit_rate > 1) {
    return cli::Misused("--hit-rate and --disk-hit-rate are shares of the same prompts: together at most 1");
  }
  load.spare = flags.spare;
  for (const auto& [text, into] : {std::pair{&flags.prompt_tokens, &load.prompt_tokens},
                                   std::pair{&flags.output_tokens, &load.output_tokens}}) {
    auto parsed = bench::Distribution::Parse(*text);
    if (!parsed.ok()) return cli::Misused(std::string(parsed.status().message()));
    *into = *parsed;
  }
  for (const auto& [text, into] :
       {std::pair{&flags.slo_ttft, &load.slo_ttft}, std::pair{&flags.slo_tpot, &load.slo_tpot}}) {
    const auto parsed = cli::ParseDuration(*text);
    if (!parsed.ok()) return cli::Misused(std::string(parsed.status().message()));
    *into = absl::ToDoubleSeconds(*parsed);
  }
  const auto bytes = cli::ParseBytes(flags.kv_memory);
  if (!bytes.ok()) return cli::Misused(std::string(bytes.status().message()));
  load.kv_bytes = *bytes;
  const auto disk_bandwidth = cli::ParseBytes(flags.disk_bandwidth);
  if (!disk_bandwidth.ok()) return cli::Misused(std::string(disk_bandwidth.status().message()));
  if (*disk_bandwidth <= 0) return cli::Misused("--disk-bandwidth must be more than 0");
  load.disk_bandwidth = static_cast<double>(*disk_bandwidth);
  const auto profile = plan::ReadProfile(flags.profile);
  if (!profile.ok()) return cli::Fail(profile.status());
  const auto pools = plan::PlanPools(*profile, load);
  if (!pools.ok()) return cli::Fail(pools.status());
  if (flags.json) {
    fmt::print("{}\n", ToJson(*profile, *pools));
  } else {
    PrintPlan(flags, *profile, load, *pools, context.out);
  }
  return cli::kExitOk;
}

}  // namespace

cli::Command AddPlan(CLI::App& root, const cli::CliContext& context) {
  CLI::App* app = root.add_subcommand(cli::kPlan.name, cli::kPlan.description);
  app->footer(kPlanExamples);
  auto flags = std::make_shared<PlanFlags>();
  app->add_option("--profile", flags->profile, "Speed of the workers, as `baton bench --profile` measures it")
      ->type_name("FILE")
      ->required();
  app->add_option("-r,--rate", flags->rate, "Requests per second")
      ->type_name("R")
      ->required()
      ->check(CLI::PositiveNumber);
  app->add_option("--prompt-tokens", flags->prompt_tokens,
                  "N, uniform:A:B, normal:MEAN:STDDEV or lognormal:MEDIAN:SIGMA")
      ->type_name("DIST")
      ->capture_default_str();
  app->add_option("--output-tokens", flags->output_tokens, "Length of answers, likewise")
      ->type_name("DIST")
      ->capture_default_str();
  app->add_option("--hit-rate", flags->hit_rate, "Share of prompt tokens that caches hold, 0 to 1")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--disk-hit-rate", flags->disk_hit_rate,
                  "Share of prompt tokens that prefill workers read from their disks, 0 to 1")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--disk-bandwidth", flags->disk_bandwidth, "Bytes per second that such a disk reads")
      ->type_name("SIZE")
      ->capture_default_str();
  app->add_option("--slo-ttft", flags->slo_ttft, "TTFT that 95% of requests should meet")
      ->type_name("TIME")
      ->capture_default_str();
  app->add_option("--slo-tpot", flags->slo_tpot, "TPOT to meet")->type_name("TIME")->capture_default_str();
  app->add_option("--kv-memory", flags->kv_memory, "KV memory of a decode worker, for example 40GiB")
      ->type_name("SIZE")
      ->required();
  app->add_option("--spare", flags->spare, "Workers of each pool that may be missing")
      ->type_name("N")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "Print the figures as JSON");
  return {app, [flags, &context] { return RunPlan(*flags, context); }};
}

}  // namespace baton::lab
