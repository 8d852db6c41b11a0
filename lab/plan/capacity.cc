#include "lab/plan/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/show/quantity.h"

namespace baton::lab::plan {
namespace {

// Enough draws that a percentile moves by less than the model's own error.
constexpr uint64_t kDraws = 20000;
constexpr double kPercentile = 0.95;
// Above this a queue's length is a matter of luck.
constexpr double kMaxBusy = 0.85;
// Max share of KV memory: sequences come and go, and none should be preempted.
constexpr double kMaxKv = 0.85;
// Max share of a link, or a disk, that also carries bursts.
constexpr double kMaxLink = 0.7;
constexpr int kMaxWorkers = 100000;

double Percentile(std::vector<double>& values, double q) {
  const auto at = values.begin() + static_cast<int64_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

double ErlangC(int servers, double offered) {
  // Erlang's B by its recursion, which does not overflow; C from B (Kleinrock, "Queueing Systems", vol.
  // 1, 3.5).
  double blocked = 1;
  for (int n = 1; n <= servers; ++n) blocked = offered * blocked / (n + offered * blocked);
  const double busy = offered / servers;
  return blocked / (1 - busy * (1 - blocked));
}

absl::StatusOr<Pools> PlanPools(const Profile& profile, const Load& load) {
  Pools pools;
  std::vector<double> seconds, loads;
  seconds.reserve(kDraws);
  loads.reserve(kDraws);
  double sum = 0, squares = 0, bytes = 0, read = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const auto prompt =
        static_cast<double>(load.prompt_tokens.SampleCount(0, bench::Purpose::kPromptLength, i));
    const auto output =
        static_cast<double>(load.output_tokens.SampleCount(0, bench::Purpose::kOutputLength, i));
    const double on_disk = prompt * load.disk_hit_rate;
    const double cached = prompt * load.hit_rate + on_disk;
    const double took = profile.PrefillSeconds(prompt - cached, cached);
    seconds.push_back(took);
    sum += took;
    squares += took * took;
    // KV from a disk is shipped too.
    bytes += (prompt - cached + on_disk) * static_cast<double>(profile.kv_bytes_per_token);
    read += on_disk * static_cast<double>(profile.kv_bytes_per_token);
    loads.push_back(on_disk * static_cast<double>(profile.kv_bytes_per_token) / load.disk_bandwidth);
    pools.uncached_mean += (prompt - cached) / kDraws;
    pools.output_mean += output / kDraws;
    // A sequence is met in the middle of its answer, and long answers are met for longer.
    pools.context_mean += output * (prompt + output / 2) / kDraws;
  }
  pools.context_mean /= pools.output_mean;

  // Decode first: its step is part of TTFT. A worker at `batch` sequences does each token in StepSeconds, and
  // holds rate / workers * output * step of them (Little's law), which is linear in the batch.
  DecodePool& decode = pools.decode;
  const double per_sequence = profile.step_sequence + profile.step_context * pools.context_mean;
  decode.batch_by_tpot = (load.slo_tpot - profile.step_base) / per_sequence;
  decode.batch_by_kv = kMaxKv * static_cast<double>(load.kv_bytes) /
                       (pools.context_mean * static_cast<double>(profile.kv_bytes_per_token));
  if (decode.batch_by_tpot < 1) {
    return absl::FailedPreconditionError(fmt::format(
        "a TPOT of {} can't be met: a step with one sequence takes {}", cli::ShowSeconds(load.slo_tpot),
        cli::ShowSeconds(profile.StepSeconds(1, pools.context_mean))));
  }
  if (decode.batch_by_kv < 1) {
    return absl::FailedPreconditionError(fmt::format(
        "KV memory of {} does not hold one sequence of {:.0f} tokens ({} each)",
        cli::ShowBytes(load.kv_bytes), pools.context_mean, cli::ShowBytes(profile.kv_bytes_per_token)));
  }
  decode.bound_by_kv = decode.batch_by_kv < decode.batch_by_tpot;
  const double most = std::min(decode.batch_by_kv, decode.batch_by_tpot);
  const double tokens_per_second = load.rate * pools.output_mean;
  // A worker with the greatest batch gives most / step(most) tokens per second.
  const double step_at_max = profile.StepSeconds(most, most * pools.context_mean);
  // And however small the base of a step is, sequences alone may not fill a worker's time.
  const auto decode_workers = static_cast<int64_t>(
      std::ceil(tokens_per_second * std::max(step_at_max / most, per_sequence / kMaxBusy)));
  const auto decode_count = static_cast<double>(std::max<int64_t>(1, decode_workers));
  const double share = tokens_per_second / decode_count;
  decode.batch = share * profile.step_base / (1 - share * per_sequence);
  decode.tpot = profile.StepSeconds(decode.batch, decode.batch * pools.context_mean);
  if (decode.batch < 1) {
    // Most of the time nothing runs; but whatever runs is a sequence, and no part of one.
    decode.tpot = profile.StepSeconds(1, pools.context_mean);
    decode.batch = share * decode.tpot;
  }
  decode.kv_used = decode.batch * pools.context_mean * static_cast<double>(profile.kv_bytes_per_token) /
                   static_cast<double>(load.kv_bytes);
  decode.workers = static_cast<int>(decode_count) + load.spare;

  PrefillPool& prefill = pools.prefill;
  prefill.seconds_mean = sum / kDraws;
  prefill.seconds_p95 = Percentile(seconds, kPercentile);
  const double variability =
      std::max(0.0, squares / kDraws / (prefill.seconds_mean * prefill.seconds_mean) - 1);
  if (profile.link_bandwidth.has_value()) {
    pools.ship_seconds = profile.link_latency + bytes / kDraws / *profile.link_bandwidth;
  }
  pools.disk_seconds = Percentile(loads, kPercentile);
  // Shipping overlaps computing, but for the last layers; a step of the running batch goes before the first
  // token. Computing begins where reading ends.
  const double rest = prefill.seconds_p95 + pools.disk_seconds + pools.ship_seconds + decode.tpot;
  if (rest > load.slo_ttft) {
    return absl::FailedPreconditionError(
        fmt::format("a TTFT of {} can't be met for 95%: their prompts take {} to read from disk, {} to "
                    "compute, {} to ship and {} for the first step, "
                    "without any wait. Shorten prompts, raise the hit rate or the objective",
                    cli::ShowSeconds(load.slo_ttft), cli::ShowSeconds(pools.disk_seconds),
                    cli::ShowSeconds(prefill.seconds_p95), cli::ShowSeconds(pools.ship_seconds),
                    cli::ShowSeconds(decode.tpot)));
  }
  const double offered = load.rate * prefill.seconds_mean;
  const double ship = load.rate * bytes / kDraws;
  for (int count = std::max(1, static_cast<int>(std::min(offered, 1.0 * kMaxWorkers)));; ++count) {
    if (count > kMaxWorkers) return absl::FailedPreconditionError("the load needs more than 100,000 workers");
    prefill.utilization = offered / count;
    pools.ship_rate = ship / count;
    if (profile.link_bandwidth.has_value()) pools.link_used = pools.ship_rate / *profile.link_bandwidth;
    pools.disk_rate = load.rate * read / kDraws / count;
    pools.disk_used = pools.disk_rate / load.disk_bandwidth;
    if (prefill.utilization > kMaxBusy || std::max(pools.link_used, pools.disk_used) > kMaxLink) continue;
    // Waits are exponentially distributed (M/M/c), scaled for the service's own variability (Allen and
    // Cunneen).
    const double waits = ErlangC(count, offered);
    const double mean_wait = prefill.seconds_mean / (count - offered) * (1 + variability) / 2;
    prefill.wait_p95 = waits <= 1 - kPercentile ? 0 : mean_wait * std::log(waits / (1 - kPercentile));
    prefill.ttft_p95 = prefill.wait_p95 + rest;
    if (prefill.ttft_p95 <= load.slo_ttft) {
      prefill.workers = count + load.spare;
      return pools;
    }
  }
}

}  // namespace baton::lab::plan
