#include "lab/simulate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/show/quantity.h"

namespace baton::lab::simulate {
namespace {

using Json = nlohmann::ordered_json;

Json PercentilesToJson(const Percentiles& percentiles) {
  return {{"mean", percentiles.mean},
          {"p50", percentiles.p50},
          {"p90", percentiles.p90},
          {"p99", percentiles.p99}};
}

}  // namespace

std::string RenderTable(const std::vector<Measures>& policies) {
  std::vector<std::vector<std::string>> rows = {{"policy", "goodput", "in SLO", "cached", "of ideal",
                                                 "from disk", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99",
                                                 "load", "max/mn"}};
  for (const Measures& m : policies) {
    rows.push_back({m.policy, fmt::format("{:.2f}/s", m.goodput), fmt::format("{:.1f}%", 100 * m.good_share),
                    fmt::format("{:.1f}%", 100 * m.hit_rate), fmt::format("{:.1f}%", 100 * m.hit_share),
                    fmt::format("{:.1f}%", 100 * m.loaded_share), cli::ShowSeconds(m.ttft.p50),
                    cli::ShowSeconds(m.ttft.p99), cli::ShowSeconds(m.tpot.p50), cli::ShowSeconds(m.tpot.p99),
                    fmt::format("{:.0f}%", 100 * m.utilisation), fmt::format("{:.2f}", m.imbalance)});
  }
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (size_t line = 0; line < rows.size(); ++line) {
    table += fmt::format("{:<{}}", rows[line][0], widths[0]);
    for (size_t i = 1; i < widths.size(); ++i) table += fmt::format("  {:>{}}", rows[line][i], widths[i]);
    table += '\n';
    if (line == 0) continue;
    const Measures& m = policies[line - 1];
    if (m.too_long > 0) {
      table += fmt::format("{:<{}}  {} refused: longer than a worker's cache\n", "", widths[0], m.too_long);
    }
    if (m.refused > m.too_long) {
      table += fmt::format("{:<{}}  {} refused at once: the first token would have come too late\n", "",
                           widths[0], m.refused - m.too_long);
    }
  }
  return table;
}

Json ToJson(const Measures& m) {
  Json json = Json::object();
  json["policy"] = m.policy;
  json["requests"] = m.requests;
  json["refused"] = m.refused;
  json["too_long"] = m.too_long;
  json["offered_per_second"] = m.offered_rate;
  json["goodput_per_second"] = m.goodput;
  json["good_share"] = m.good_share;
  json["ttft_share"] = m.ttft_share;
  json["hit_rate"] = m.hit_rate;
  json["hit_share_of_ideal"] = m.hit_share;
  json["fetched_share"] = m.fetched_share;
  json["loaded_share"] = m.loaded_share;
  json["local_share"] = m.local_share;
  json["ttft_seconds"] = PercentilesToJson(m.ttft);
  json["tpot_seconds"] = PercentilesToJson(m.tpot);
  json["wait_seconds"] = PercentilesToJson(m.wait);
  json["prefill_max_over_mean"] = m.imbalance;
  json["prefill_utilisation"] = m.utilisation;
  json["reasons"] = m.reasons;
  return json;
}

std::string RenderRequests(const RunResult& run) {
  std::string lines;
  for (const RequestRecord& record : run.records) {
    if (record.refused) continue;
    const Json json = {{"at", record.request->arrival},
                       {"prompt_tokens", record.request->prompt_tokens},
                       {"output_tokens", record.request->output_tokens},
                       {"cached_tokens", record.cached_tokens},
                       {"prefill_queue", record.began - record.placed},
                       {"prefill", record.computed - record.began},
                       {"transfer", record.first_token - record.computed},
                       {"rest", record.placed - record.request->arrival},
                       {"ttft", record.ttft()},
                       {"predicted_ttft", record.selection.predicted.ttft()}};
    lines += json.dump() + "\n";
  }
  return lines;
}

}  // namespace baton::lab::simulate
