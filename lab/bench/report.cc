#include "lab/bench/report.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/show/quantity.h"

namespace baton::lab::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<double, 4> kShares = {0.5, 0.9, 0.95, 0.99};
constexpr std::array<const char*, 6> kPhaseNames = {"admit",   "decode_queue", "prefill_queue",
                                                    "prefill", "transfer",     "first_token"};
// A client that sends later than this was too slow for the load; its numbers say less about the server.
constexpr double kLate = 0.010;
// A larger share of tokens that come right after the one before is no even stream.
constexpr double kBunched = 0.2;

double PerSecond(int64_t count, const Summary& summary) {
  return summary.seconds > 0 ? static_cast<double>(count) / summary.seconds : 0;
}

std::string Label(const cli::Terminal& terminal, std::string_view label) {
  return cli::Paint(terminal, cli::Style::kBold, fmt::format("  {:<10}", label));
}

template <typename Values>
std::string LatencyRow(const cli::Terminal& terminal, std::string_view label, const Values& values) {
  if (values.count() == 0) return "";
  std::string row = Label(terminal, label);
  for (const double share : kShares) row += fmt::format("{:>10}", cli::ShowSeconds(values.Percentile(share)));
  return row + fmt::format("{:>10}{:>10}\n", cli::ShowSeconds(values.Max()), cli::ShowSeconds(values.Mean()));
}

template <typename Values>
Json LatencyJson(const Values& values) {
  return {{"count", values.count()},        {"p50", values.Percentile(0.5)},  {"p90", values.Percentile(0.9)},
          {"p95", values.Percentile(0.95)}, {"p99", values.Percentile(0.99)}, {"max", values.Max()},
          {"mean", values.Mean()}};
}

std::string DescribeSlo(const Slo& slo) {
  std::string text;
  if (slo.ttft.has_value())
    text += fmt::format("TTFT {}", cli::ShowSeconds(absl::ToDoubleSeconds(*slo.ttft)));
  if (slo.ttft.has_value() && slo.tpot.has_value()) text += " and ";
  if (slo.tpot.has_value())
    text += fmt::format("TPOT {}", cli::ShowSeconds(absl::ToDoubleSeconds(*slo.tpot)));
  return text;
}

std::string Percent(int64_t part, int64_t whole) {
  return whole == 0 ? "0%"
                    : fmt::format("{:.1f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

double BunchedShare(const Summary& summary) {
  return summary.itl.count() == 0
             ? 0
             : static_cast<double>(summary.bunched) / static_cast<double>(summary.itl.count());
}

std::string RenderOutcomes(const Summary& summary, const cli::Terminal& terminal) {
  std::string out = Label(terminal, "requests") +
                    fmt::format("{} ok, {} failed, in {}: {:.2f}/s\n", cli::ShowCount(summary.succeeded),
                                cli::ShowCount(summary.failed), cli::ShowSeconds(summary.seconds),
                                PerSecond(summary.succeeded, summary));
  if (summary.too_long > 0) {
    out += Label(terminal, "") +
           fmt::format("{} not sent: longer than the model's context\n", cli::ShowCount(summary.too_long));
  }
  if (summary.overflowed > 0) {
    out += Label(terminal, "") +
           fmt::format("{} not sent: too many in flight\n", cli::ShowCount(summary.overflowed));
  }
  if (summary.cut_off > 0) {
    out += Label(terminal, "") +
           fmt::format("{} cut off by the end of the run\n", cli::ShowCount(summary.cut_off));
  }
  for (const auto& [code, error] : summary.errors) {
    out += Label(terminal, "") +
           cli::Paint(terminal, cli::Style::kRed,
                      fmt::format("{} x {}: {}", cli::ShowCount(error.count), code, error.first_message)) +
           "\n";
  }
  if (summary.refused.count() > 0) {
    out += Label(terminal, "refused") +
           fmt::format("{}, answered in {} (p50) and {} (p99); {} with a time to try again\n",
                       cli::ShowCount(summary.refused.count()),
                       cli::ShowSeconds(summary.refused.Percentile(0.5)),
                       cli::ShowSeconds(summary.refused.Percentile(0.99)),
                       cli::ShowCount(summary.refused_with_delay));
  }
  return out;
}

}  // namespace

std::string RenderReport(const Summary& summary, const Slo& slo, const cli::Terminal& terminal) {
  std::string out = RenderOutcomes(summary, terminal);
  if (summary.succeeded == 0) return out;
  out += Label(terminal, "tokens") +
         fmt::format("in {} ({:.0f}/s), out {} ({:.0f}/s)\n\n", cli::ShowCount(summary.input_tokens),
                     PerSecond(summary.input_tokens, summary), cli::ShowCount(summary.output_tokens),
                     PerSecond(summary.output_tokens, summary));
  out += fmt::format("  {:<10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "", "p50", "p90", "p95", "p99", "max",
                     "mean");
  out += LatencyRow(terminal, "TTFT", summary.ttft);
  out += LatencyRow(terminal, "TPOT", summary.tpot);
  out += LatencyRow(terminal, "ITL", summary.itl);
  out += LatencyRow(terminal, "E2E", summary.e2e);
  out += LatencyRow(terminal, "queue", summary.queue);
  out += "\n";
  std::string phases;
  for (size_t i = 0; i < kPhaseNames.size(); ++i) {
    phases += fmt::format("{}{} {}", i == 0 ? "" : ", ", kPhaseNames[i],
                          cli::ShowSeconds(summary.phases[i].Mean()));
  }
  out += Label(terminal, "phases") + phases + " (means, by the server)\n";
  out += Label(terminal, "cache") + fmt::format("{} of prompt tokens on decode, {} on prefill\n",
                                                Percent(summary.decode_cached_tokens, summary.input_tokens),
                                                Percent(summary.prefill_cached_tokens, summary.input_tokens));
  std::string links;
  for (const auto& [link, count] : summary.links) {
    links += fmt::format("{}{} by \"{}\"", links.empty() ? "" : ", ", cli::ShowCount(count), link);
  }
  out +=
      Label(terminal, "relay") + fmt::format("{}; {} shipped", links, cli::ShowBytes(summary.shipped_bytes));
  if (summary.failovers > 0) out += fmt::format("; {} failed hand-offs", cli::ShowCount(summary.failovers));
  if (summary.preemptions > 0) out += fmt::format("; {} preemptions", cli::ShowCount(summary.preemptions));
  out += "\n";
  if (summary.good.has_value()) {
    out += Label(terminal, "goodput") +
           fmt::format("{:.2f}/s: {} of requests within {}\n", PerSecond(*summary.good, summary),
                       Percent(*summary.good, summary.succeeded + summary.failed), DescribeSlo(slo));
  }
  if (const double share = BunchedShare(summary); share > kBunched) {
    out += Label(terminal, "bunched") +
           cli::Paint(terminal, cli::Style::kYellow,
                      fmt::format(
                          "{:.0f}% of tokens came less than a tenth of the TPOT after the token before: they "
                          "waited on the way",
                          100 * share)) +
           "\n" + Label(terminal, "") +
           "(baton_decode_itl_seconds and baton_router_itl_seconds show where: if they are even, it was this "
           "client)\n";
  }
  if (summary.lateness.Percentile(0.99) > kLate) {
    out += Label(terminal, "client") +
           cli::Paint(terminal, cli::Style::kYellow,
                      fmt::format("sent up to {} late (p99 {}): this machine is too busy for this load",
                                  cli::ShowSeconds(summary.lateness.Max()),
                                  cli::ShowSeconds(summary.lateness.Percentile(0.99)))) +
           "\n";
  }
  return out;
}

Json ReportToJson(const Summary& summary, const Slo& slo, const Provenance& provenance,
                  const Json& settings) {
  Json json;
  json["machine"] = {{"cpu", provenance.machine.cpu},
                     {"cores", provenance.machine.cores},
                     {"memory_bytes", provenance.machine.memory_bytes},
                     {"kernel", provenance.machine.kernel}};
  json["commit"] = provenance.commit;
  json["time"] = provenance.time;
  json["server"] = provenance.server;
  json["model"] = provenance.model;
  json["context_tokens"] = provenance.context_tokens;
  json["seed"] = provenance.seed;
  json["asked"] = fmt::format("{:08x}", provenance.asked);
  json["interrupted"] = provenance.interrupted;
  json["settings"] = settings;
  json["seconds"] = summary.seconds;
  json["requests"] = {
      {"succeeded", summary.succeeded},   {"failed", summary.failed},
      {"cut_off", summary.cut_off},       {"too_long", summary.too_long},
      {"overflowed", summary.overflowed}, {"per_second", PerSecond(summary.succeeded, summary)}};
  json["errors"] = Json::object();
  for (const auto& [code, error] : summary.errors) {
    json["errors"][code] = {{"count", error.count}, {"first_message", error.first_message}};
  }
  json["refused"] = LatencyJson(summary.refused);
  json["refused"]["with_retry_delay"] = summary.refused_with_delay;
  json["tokens"] = {{"input", summary.input_tokens},
                    {"output", summary.output_tokens},
                    {"input_per_second", PerSecond(summary.input_tokens, summary)},
                    {"output_per_second", PerSecond(summary.output_tokens, summary)},
                    {"decode_cached", summary.decode_cached_tokens},
                    {"prefill_cached", summary.prefill_cached_tokens}};
  json["ttft"] = LatencyJson(summary.ttft);
  json["tpot"] = LatencyJson(summary.tpot);
  json["itl"] = LatencyJson(summary.itl);
  json["bunched_share"] = BunchedShare(summary);
  json["e2e"] = LatencyJson(summary.e2e);
  json["queue"] = LatencyJson(summary.queue);
  json["phases"] = Json::object();
  for (size_t i = 0; i < kPhaseNames.size(); ++i)
    json["phases"][kPhaseNames[i]] = LatencyJson(summary.phases[i]);
  json["relay"] = {{"links", summary.links},
                   {"shipped_bytes", summary.shipped_bytes},
                   {"failovers", summary.failovers},
                   {"preemptions", summary.preemptions}};
  if (summary.good.has_value()) {
    Json goodput = {{"requests", *summary.good}, {"per_second", PerSecond(*summary.good, summary)}};
    if (slo.ttft.has_value()) goodput["slo_ttft"] = absl::ToDoubleSeconds(*slo.ttft);
    if (slo.tpot.has_value()) goodput["slo_tpot"] = absl::ToDoubleSeconds(*slo.tpot);
    json["goodput"] = goodput;
  }
  json["client_lateness"] = LatencyJson(summary.lateness);
  return json;
}

Json RequestToJson(const RequestRecord& record) {
  const Outcome& outcome = record.outcome;
  const v1::Finished finished = outcome.finished.value_or(v1::Finished());
  const v1::Timing& timing = finished.timing();
  const double ttft = absl::ToDoubleSeconds(outcome.first_token - record.intended);
  return {
      {"at", absl::ToDoubleSeconds(record.intended - absl::UnixEpoch())},
      {"prompt_tokens", record.prompt_tokens},
      {"output_tokens", outcome.tokens},
      {"cached_tokens", finished.usage().decode_cached_tokens() + finished.usage().prefill_cached_tokens()},
      {"prefill_queue", timing.prefill_queue_seconds()},
      {"prefill", timing.prefill_seconds()},
      {"transfer", timing.transfer_seconds()},
      {"rest", ttft - timing.prefill_queue_seconds() - timing.prefill_seconds() - timing.transfer_seconds()},
      {"ttft", ttft},
      {"predicted_ttft", finished.placement().predicted_ttft_seconds()}};
}

}  // namespace baton::lab::bench
