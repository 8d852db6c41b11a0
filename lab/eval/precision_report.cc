#include "lab/eval/precision_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/show/quantity.h"

namespace baton::lab {
namespace {

// Tokens per second.
std::string Rate(double rate) {
  return rate < 100 ? fmt::format("{:.1f}", rate) : fmt::format("{:.0f}", rate);
}

}  // namespace

std::string RenderPrecisions(const PrecisionReport& report) {
  const PrecisionEval& eval = report.eval;
  const bench::Machine& machine = report.provenance.machine;
  const Distance& first = eval.measured.front().distance;
  std::string text = fmt::format(
      "{}, compared with {} as stored and KV in f32, perplexity {:.2f}\n"
      "{} positions of {}; {}, {} threads\n\n"
      "{:<8} {:<6} {:>9} {:>9}  {:>8} {:>8} {:>8}  {:>9} {:>9} {:>7} {:>11}\n"
      "{:<8} {:<6} {:>9} {:>9}  {:>8} {:>8} {:>8}  {:>9} {:>9} {:>7}\n",
      report.provenance.model, report.reference, first.perplexity_reference, cli::ShowCount(first.positions),
      report.text, machine.cpu, report.threads, "weights", "KV", "memory", "KV of a", "prompt", "decode",
      "decode", "KL mean", "KL p99", "other", "perplexity", "", "", "", "token", "tok/s", "of 1", "of 8", "",
      "", "token");
  for (size_t i = 0; i < eval.measured.size(); ++i) {
    const MeasuredPrecision& row = eval.measured[i];
    text += fmt::format("{:<8} {:<6} ", model::Name(row.precision.weights), KvName(row.precision));
    if (!row.not_measured.empty()) {
      text += fmt::format("{}\n", row.not_measured);
      continue;
    }
    const Distance& d = row.distance;
    text += fmt::format("{:>9} {:>9}  {:>8} {:>8} {:>8}  {:>9.5f} {:>9.5f} {:>6.1f}% {:>+10.1f}%\n",
                        cli::ShowBytes(row.weight_bytes), cli::ShowBytes(row.kv_token_bytes),
                        Rate(row.prompt_rate), Rate(row.single_rate), Rate(row.batch_rate), d.mean, d.p99,
                        100 * (1 - d.same_choice), 100 * (d.perplexity / d.perplexity_reference - 1));
  }
  if (!eval.recommended.has_value()) {
    return text + fmt::format(
                      "\nNone has a mean KL divergence of at most {:g}: raise --max-kl, or start from a "
                      "model that has "
                      "lost less.\n",
                      report.max_kl);
  }
  const Precision& best = eval.measured[*eval.recommended].precision;
  return text + fmt::format(
                    "\nThe least memory with a mean KL divergence of at most {:g}:\n"
                    "  --weights {} --key-dtype {} --value-dtype {}\n",
                    report.max_kl, model::Name(best.weights), tensor::Name(best.keys),
                    tensor::Name(best.values));
}

nlohmann::ordered_json PrecisionsToJson(const PrecisionReport& report) {
  const bench::Provenance& provenance = report.provenance;
  const PrecisionEval& eval = report.eval;
  nlohmann::ordered_json json = {{"machine",
                                  {{"cpu", provenance.machine.cpu},
                                   {"cores", provenance.machine.cores},
                                   {"memory_bytes", provenance.machine.memory_bytes},
                                   {"kernel", provenance.machine.kernel}}},
                                 {"commit", provenance.commit},
                                 {"time", provenance.time},
                                 {"model", provenance.model},
                                 {"reference", report.reference},
                                 {"text", report.text},
                                 {"threads", report.threads},
                                 {"max_kl", report.max_kl},
                                 {"measured", nlohmann::ordered_json::array()}};
  const auto names = [](const Precision& precision) -> nlohmann::ordered_json {
    return {{"weights", model::Name(precision.weights)},
            {"key_dtype", tensor::Name(precision.keys)},
            {"value_dtype", tensor::Name(precision.values)}};
  };
  for (const MeasuredPrecision& row : eval.measured) {
    nlohmann::ordered_json one = names(row.precision);
    if (row.not_measured.empty()) {
      const Distance& d = row.distance;
      one.update({{"weight_bytes", row.weight_bytes},
                  {"kv_bytes_per_token", row.kv_token_bytes},
                  {"prompt_tokens_per_second", row.prompt_rate},
                  {"decode_tokens_per_second", {{"batch_1", row.single_rate}, {"batch_8", row.batch_rate}}},
                  {"positions", d.positions},
                  {"kl_mean", d.mean},
                  {"kl_p99", d.p99},
                  {"kl_largest", d.largest},
                  {"same_likeliest_token", d.same_choice},
                  {"perplexity", d.perplexity},
                  {"perplexity_reference", d.perplexity_reference}});
    } else {
      one["not_measured"] = row.not_measured;
    }
    json["measured"].push_back(std::move(one));
  }
  json["recommended"] =
      eval.recommended.has_value() ? names(eval.measured[*eval.recommended].precision) : nullptr;
  return json;
}

}  // namespace baton::lab
