#include "lab/bench/bench_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/show/quantity.h"
#include "common/base/status.h"
#include "common/command_line/option_types.h"

namespace baton::lab::bench {
namespace {

// Closed loop when nothing is said.
constexpr int kDefaultConcurrency = 4;
constexpr int64_t kDefaultRequests = 100;
// Warm-up conversations are far from all others, so that their prompts are others.
constexpr uint64_t kWarmupIndex = uint64_t{1} << 40;
constexpr int kWarmupConcurrency = 8;

// "fit", or a factor in (0, 1]; the block size that stands for 512 tokens.
absl::StatusOr<std::optional<double>> ParseScale(const std::string& text) {
  if (text.empty()) return std::optional<double>(1);
  if (text == "fit") return std::optional<double>();
  double factor = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
  if (error == std::errc() && end == text.data() + text.size() && factor > 0 && factor <= 1) {
    return std::optional<double>(factor);
  }
  return absl::InvalidArgumentError(
      fmt::format("--trace-scale-lengths {}: use \"fit\" or a factor in (0, 1]", text));
}

absl::StatusOr<std::optional<absl::Duration>> ParseLimit(const std::string& text) {
  if (text.empty()) return std::optional<absl::Duration>();
  BATON_ASSIGN_OR_RETURN(const absl::Duration limit, cli::ParseDuration(text));
  return std::optional<absl::Duration>(limit);
}

absl::Status Named(const char* flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(fmt::format("{}: {}", flag, std::string(status.message())));
}

absl::StatusOr<SyntheticSettings> MakeSyntheticSettings(const BenchFlags& flags) {
  SyntheticSettings settings;
  settings.seed = flags.seed;
  BATON_ASSIGN_OR_RETURN(settings.prompt, Distribution::Parse(flags.prompt_tokens));
  BATON_ASSIGN_OR_RETURN(settings.output, Distribution::Parse(flags.output_tokens));
  BATON_ASSIGN_OR_RETURN(settings.think_seconds, Distribution::Parse(flags.think));
  settings.shared_prefix_tokens = flags.shared_prefix_tokens;
  settings.prefix_groups = flags.prefix_groups;
  settings.turns = flags.turns;
  settings.rate = flags.rate;
  settings.arrivals = flags.arrivals == "fixed" ? Arrivals::Kind::kFixed : Arrivals::Kind::kPoisson;
  return settings;
}

absl::Status AddTrace(const BenchFlags& flags, const v1::ModelInfo& model, BenchPlan* plan) {
  BATON_ASSIGN_OR_RETURN(std::vector<TraceEntry> entries, ReadTrace(flags.trace, flags.trace_limit));
  TraceSettings settings;
  settings.seed = flags.seed;
  settings.speed = flags.trace_speed;
  BATON_ASSIGN_OR_RETURN(const std::optional<double> scale, ParseScale(flags.trace_scale_lengths));
  settings.block_tokens = scale.has_value() ? std::max<int64_t>(1, std::llround(kTraceBlockTokens * *scale))
                                            : FittingBlockTokens(entries, model.context_tokens());
  if (settings.block_tokens != kTraceBlockTokens) {
    plan->notes.push_back(fmt::format("trace lengths scaled: {} tokens stand for a block of {}",
                                      settings.block_tokens, kTraceBlockTokens));
  }
  settings.spread = flags.trace_spread == "auto" ? LooksBucketed(entries) : flags.trace_spread == "on";
  if (settings.spread)
    plan->notes.emplace_back("trace stamps are rounded to 3 s: arrivals are spread over them");
  plan->expected_requests = static_cast<int64_t>(entries.size());
  plan->workload = MakeTrace(std::move(entries), settings);
  return absl::OkStatus();
}

}  // namespace

void BenchFlags::AddTo(CLI::App& app) {
  target.AddTo(app);
  const std::string load = "Load";
  app.add_option("-c,--concurrency", concurrency,
                 "Closed loop: this many conversations at a time (default: 4)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000))
      ->group(load);
  app.add_option("-r,--rate", rate, "Open loop: conversations per second, however fast the server answers")
      ->type_name("R")
      ->check(CLI::PositiveNumber)
      ->excludes("--concurrency")
      ->group(load);
  app.add_option("--arrivals", arrivals, "With --rate: poisson or fixed")
      ->check(CLI::IsMember({"poisson", "fixed"}))
      ->capture_default_str()
      ->group(load);
  app.add_option("--requests", requests, "Number of requests (default: 100, or the whole trace)")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->group(load);
  app.add_option("--duration", duration, "Send for this long")->type_name("TIME")->group(load);
  app.add_option("--warmup", warmup, "Requests before the measured ones: other prompts, same shared prefixes")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(load);
  app.add_option("--drain", drain, "How long requests may continue after the last one is sent")
      ->type_name("TIME")
      ->capture_default_str()
      ->group(load);
  app.add_option("--connections", connections, "Spread the streams over this many connections")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(load);
  app.add_option("--max-in-flight", max_in_flight, "Open loop: arrivals beyond this are counted and not sent")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(load);
  const std::string asked =
      "Lengths of requests (DIST: N, uniform:A:B, normal:MEAN:STDDEV, lognormal:MEDIAN:SIGMA)";
  app.add_option("--prompt-tokens", prompt_tokens, "Length of each turn's prompt, besides the shared prefix")
      ->type_name("DIST")
      ->capture_default_str()
      ->group(asked);
  app.add_option("--output-tokens", output_tokens, "Length of each answer")
      ->type_name("DIST")
      ->capture_default_str()
      ->group(asked);
  app.add_option("--shared-prefix-tokens", shared_prefix_tokens,
                 "Length of a shared prefix with which every conversation begins")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(asked);
  app.add_option("--prefix-groups", prefix_groups, "Number of different shared prefixes")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(asked);
  app.add_option("--turns", turns, "Turns of a conversation; each one contains all earlier turns")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(asked);
  app.add_option("--think", think, "Seconds between an answer and the next turn")
      ->type_name("DIST")
      ->capture_default_str()
      ->group(asked);
  app.add_option("--seed", seed, "The same seed makes the same requests")
      ->type_name("N")
      ->transform(command_line::WholeNumber())
      ->capture_default_str()
      ->group(asked);
  app.add_option("--temperature", temperature, "0 takes the likeliest token each time")
      ->type_name("T")
      ->capture_default_str()
      ->group(asked);
  app.add_flag("--respect-eos", respect_eos, "Let the model end answers early; lengths are then upper bounds")
      ->group(asked);
  const std::string traces = "Traces (Mooncake's format: timestamp, input_length, output_length, hash_ids)";
  app.add_option("--trace", trace, "Replay this JSONL file in place of the lengths above")
      ->type_name("FILE")
      ->excludes("--rate")
      ->group(traces);
  app.add_option("--trace-speed", trace_speed, "2 is twice as fast as recorded")
      ->type_name("X")
      ->check(CLI::PositiveNumber)
      ->needs("--trace")
      ->group(traces);
  app.add_option("--trace-limit", trace_limit, "Only the first N lines")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs("--trace")
      ->group(traces);
  app.add_option("--trace-scale-lengths", trace_scale_lengths,
                 "Shrink all lengths by this factor, or \"fit\" the longest into the model's context")
      ->type_name("X|fit")
      ->needs("--trace")
      ->group(traces);
  app.add_option("--trace-spread", trace_spread, "Spread stamps over buckets of 3 s: on, off or auto")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->needs("--trace")
      ->group(traces);
  const std::string report = "Report";
  app.add_option("--slo-ttft", slo_ttft, "Goodput counts requests with a TTFT within this, for example 500ms")
      ->type_name("TIME")
      ->group(report);
  app.add_option("--slo-tpot", slo_tpot, "... and a TPOT within this")->type_name("TIME")->group(report);
  app.add_option("--json", json, "Write everything as JSON; \"-\" is standard output, in place of the table")
      ->type_name("FILE")
      ->group(report);
  app.add_option(
         "--profile", profile,
         "Write the speed of the workers, fitted to this run, for `baton plan` and `baton simulate --fleet`")
      ->type_name("FILE")
      ->group(report);
  app.add_option("--record", record,
                 "Write each answered request and the phases of its TTFT, one JSON object a line")
      ->type_name("FILE")
      ->group(report);
}

absl::Status CheckFlags(const BenchFlags& flags) {
  BATON_RETURN_IF_ERROR(flags.target.Check());
  BATON_RETURN_IF_ERROR(Named("--prompt-tokens", Distribution::Parse(flags.prompt_tokens).status()));
  BATON_RETURN_IF_ERROR(Named("--output-tokens", Distribution::Parse(flags.output_tokens).status()));
  BATON_RETURN_IF_ERROR(Named("--think", Distribution::Parse(flags.think).status()));
  BATON_RETURN_IF_ERROR(Named("--duration", ParseLimit(flags.duration).status()));
  BATON_RETURN_IF_ERROR(Named("--drain", cli::ParseDuration(flags.drain).status()));
  BATON_RETURN_IF_ERROR(Named("--slo-ttft", ParseLimit(flags.slo_ttft).status()));
  BATON_RETURN_IF_ERROR(Named("--slo-tpot", ParseLimit(flags.slo_tpot).status()));
  return ParseScale(flags.trace_scale_lengths).status();
}

absl::StatusOr<BenchPlan> MakePlan(const BenchFlags& flags, const v1::ModelInfo& model) {
  BenchPlan plan;
  BATON_ASSIGN_OR_RETURN(SyntheticSettings synthetic, MakeSyntheticSettings(flags));
  RunSettings& run = plan.run;
  run.model = model.name();
  run.seed = flags.seed;
  run.context_tokens = model.context_tokens();
  run.vocabulary_tokens = static_cast<int32_t>(model.vocabulary_tokens());
  if (run.vocabulary_tokens <= 0)
    return absl::FailedPreconditionError("the server does not report the size of its vocabulary");
  const bool open = flags.rate.has_value() || (!flags.trace.empty() && !flags.concurrency.has_value());
  run.concurrency = open ? 0 : flags.concurrency.value_or(kDefaultConcurrency);
  run.max_in_flight = flags.max_in_flight;
  BATON_ASSIGN_OR_RETURN(const std::optional<absl::Duration> duration, ParseLimit(flags.duration));
  run.duration = duration.value_or(absl::InfiniteDuration());
  BATON_ASSIGN_OR_RETURN(run.drain, cli::ParseDuration(flags.drain));
  run.timeout = flags.target.Timeout();
  run.ignore_eos = !flags.respect_eos;
  run.keep_answers = flags.turns > 1 && flags.trace.empty();
  run.sampling.set_temperature(flags.temperature);
  run.requests = flags.requests.value_or(0);
  if (flags.trace.empty()) {
    if (run.requests == 0 && !duration.has_value()) run.requests = kDefaultRequests;
    plan.workload = MakeSynthetic(synthetic);
    plan.expected_requests = run.requests;
  } else {
    BATON_RETURN_IF_ERROR(AddTrace(flags, model, &plan));
    if (run.requests > 0) plan.expected_requests = std::min(plan.expected_requests, run.requests);
  }
  if (flags.warmup > 0) {
    // No prompt of a trace may be cached before: its warm-up is synthetic.
    synthetic.rate.reset();
    synthetic.first_index = kWarmupIndex;
    plan.warmup = MakeSynthetic(synthetic);
    plan.warmup_run = run;
    plan.warmup_run.concurrency =
        std::min(flags.warmup, run.concurrency > 0 ? run.concurrency : kWarmupConcurrency);
    plan.warmup_run.requests = flags.warmup;
    plan.warmup_run.duration = absl::InfiniteDuration();
  }
  BATON_ASSIGN_OR_RETURN(plan.recorder.slo.ttft, ParseLimit(flags.slo_ttft));
  BATON_ASSIGN_OR_RETURN(plan.recorder.slo.tpot, ParseLimit(flags.slo_tpot));
  plan.recorder.exact_length = run.ignore_eos;
  return plan;
}

}  // namespace baton::lab::bench
