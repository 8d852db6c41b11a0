#include "lab/bench/engine_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/show/quantity.h"
#include "engine/device/memory.h"

namespace baton::lab::bench {
namespace {

// "median (lowest to highest)" of tokens per second.
std::string Rates(const EngineRun& run) {
  const auto tokens = static_cast<double>(run.tokens());
  const auto [least, most] = std::ranges::minmax(run.seconds);
  return fmt::format("{:.1f} ({:.1f} to {:.1f})", tokens / MedianOf(run.seconds), tokens / most,
                     tokens / least);
}

}  // namespace

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string RenderEngineReport(const EngineBenchResult& result, const std::string& weights,
                               const Provenance& provenance) {
  const bool host = result.device == device::HostMemory().name();
  std::string text = fmt::format(
      "{}, weights {}: {} ({} in {}), KV {}\n{}, {} of {} cores, {}\narithmetic {}, commit {}\n"
      "limits: the product kernel {:.0f} Gop/s {} (a multiply-add is two), {} {:.1f} GB/s {}\n",
      provenance.model, weights, "loaded", cli::ShowBytes(result.weight_bytes),
      cli::ShowSeconds(result.load_seconds), cli::ShowBytes(result.kv_bytes), provenance.machine.cpu,
      result.threads, provenance.machine.cores, provenance.machine.kernel, result.numerics, provenance.commit,
      MedianOf(result.product_rate) / 1e9, host ? "in cache" : "of a large product", result.device,
      MedianOf(result.read_rate) / 1e9, host ? "read" : "copied, reads and writes");
  const auto table = [&](bool prompts) {
    const auto is_prompt = [](const EngineRun& run) { return run.prompt > 0; };
    if (std::ranges::none_of(result.runs, [&](const EngineRun& run) { return is_prompt(run) == prompts; }))
      return;
    text += prompts ? fmt::format("\n{:>8}  {:>10}  {:>26}  {}\n", "prompt", "took", "tokens/s",
                                  "of the product kernel")
                    : fmt::format("\n{:>8}  {:>8}  {:>10}  {:>26}  {:>9}  {}\n", "batch", "depth", "step",
                                  "tokens/s", "reads", "of memory");
    for (const EngineRun& run : result.runs) {
      if (is_prompt(run) != prompts) continue;
      const double seconds = MedianOf(run.seconds);
      const double share = 100 * MedianOf(run.of_limit);
      text += prompts ? fmt::format("{:>8}  {:>10}  {:>26}  {:.0f}%\n", run.prompt, cli::ShowSeconds(seconds),
                                    Rates(run), share)
                      : fmt::format("{:>8}  {:>8}  {:>10}  {:>26}  {:>4.1f} GB/s  {:.0f}%\n", run.batch,
                                    run.depth, cli::ShowSeconds(seconds), Rates(run),
                                    run.bytes / seconds / 1e9, share);
    }
  };
  table(true);
  table(false);
  text += fmt::format(
      "\nMedians of {} (lowest to highest). Prompts end with the logits of one row; products leave out "
      "attention.\n",
      result.runs.empty() ? 0 : result.runs.front().seconds.size());
  return text;
}

nlohmann::ordered_json EngineReportToJson(const EngineBenchResult& result, const std::string& weights,
                                          const Provenance& provenance) {
  nlohmann::ordered_json json = {{"machine",
                                  {{"cpu", provenance.machine.cpu},
                                   {"cores", provenance.machine.cores},
                                   {"memory_bytes", provenance.machine.memory_bytes},
                                   {"kernel", provenance.machine.kernel}}},
                                 {"commit", provenance.commit},
                                 {"time", provenance.time},
                                 {"model", provenance.model},
                                 {"weights", weights},
                                 {"numerics", result.numerics},
                                 {"device", result.device},
                                 {"threads", result.threads},
                                 {"load_seconds", result.load_seconds},
                                 {"weight_bytes", result.weight_bytes},
                                 {"kv_bytes", result.kv_bytes},
                                 {"limits",
                                  {{"product_operations_per_second", MedianOf(result.product_rate)},
                                   {"read_bytes_per_second", MedianOf(result.read_rate)}}}};
  nlohmann::ordered_json prefill = nlohmann::ordered_json::array(), decode = prefill;
  for (const EngineRun& run : result.runs) {
    const double rate = static_cast<double>(run.tokens()) / MedianOf(run.seconds);
    nlohmann::ordered_json one = run.prompt > 0
                                     ? nlohmann::ordered_json{{"prompt_tokens", run.prompt}}
                                     : nlohmann::ordered_json{{"batch", run.batch}, {"depth", run.depth}};
    one["tokens_per_second"] = rate;
    one["seconds"] = run.seconds;
    one["of_limit"] = MedianOf(run.of_limit);
    if (run.prompt == 0) one["bytes"] = run.bytes;
    (run.prompt > 0 ? prefill : decode).push_back(std::move(one));
  }
  json["prefill"] = std::move(prefill);
  json["decode"] = std::move(decode);
  return json;
}

}  // namespace baton::lab::bench
