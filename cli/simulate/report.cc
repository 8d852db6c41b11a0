#include "cli/simulate/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/show/quantity.h"

namespace baton::cli::simulate {
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
  std::string table = fmt::format("{:<17}{:>9}{:>8}{:>8}{:>9}{:>10}{:>10}{:>10}{:>10}{:>7}{:>7}\n", "policy",
                                  "goodput", "in SLO", "cached", "of ideal", "TTFT p50", "TTFT p99",
                                  "TPOT p50", "TPOT p99", "load", "max/mn");
  for (const Measures& m : policies) {
    table +=
        fmt::format("{:<17}{:>7.2f}/s{:>7.1f}%{:>7.1f}%{:>8.1f}%{:>10}{:>10}{:>10}{:>10}{:>6.0f}%{:>7.2f}\n",
                    m.policy, m.goodput, 100 * m.good_share, 100 * m.hit_rate, 100 * m.hit_share,
                    ShowSeconds(m.ttft.p50), ShowSeconds(m.ttft.p99), ShowSeconds(m.tpot.p50),
                    ShowSeconds(m.tpot.p99), 100 * m.utilisation, m.imbalance);
    if (m.too_long > 0)
      table += fmt::format("{:<17}{} refused: longer than a worker's cache\n", "", m.too_long);
    if (m.refused > m.too_long) {
      table += fmt::format("{:<17}{} refused at once: the first token would have come too late\n", "",
                           m.refused - m.too_long);
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
  json["local_share"] = m.local_share;
  json["ttft_seconds"] = PercentilesToJson(m.ttft);
  json["tpot_seconds"] = PercentilesToJson(m.tpot);
  json["wait_seconds"] = PercentilesToJson(m.wait);
  json["prefill_max_over_mean"] = m.imbalance;
  json["prefill_utilisation"] = m.utilisation;
  json["reasons"] = m.reasons;
  return json;
}

std::string RenderRequests(const Played& run) {
  std::string lines;
  for (const Ticket& ticket : run.tickets) {
    if (ticket.refused) continue;
    const Json json = {{"at", ticket.request->arrival},
                       {"prompt_tokens", ticket.request->prompt_tokens},
                       {"output_tokens", ticket.request->output_tokens},
                       {"cached_tokens", ticket.cached_tokens},
                       {"prefill_queue", ticket.began - ticket.placed},
                       {"prefill", ticket.computed - ticket.began},
                       {"transfer", ticket.first_token - ticket.computed},
                       {"rest", ticket.placed - ticket.request->arrival},
                       {"ttft", ticket.ttft()},
                       {"predicted_ttft", ticket.choice.predicted.ttft()}};
    lines += json.dump() + "\n";
  }
  return lines;
}

}  // namespace baton::cli::simulate
