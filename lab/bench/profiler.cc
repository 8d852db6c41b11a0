#include "lab/bench/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/base/ids.h"
#include "protocol/forecast/linear_fit.h"
#include "protocol/forecast/prefill_forecast.h"

namespace baton::lab::bench {
namespace {

constexpr size_t kMinSamples = 20;
// Which answers ran together is looked up pair by pair.
constexpr size_t kMaxSamples = 4000;
// The fit forgets; several passes make the first request count like the last.
constexpr int kPasses = 8;
// Tokens of KV that a worker is taken to have room for.
constexpr int64_t kAssumedTokens = 2'000'000;

// The value that this share of all is below.
double At(double share, std::vector<double> values) {
  if (values.empty()) return 0;
  const double rank = share * static_cast<double>(values.size());
  const auto at = values.begin() + std::min(std::ssize(values) - 1, static_cast<int64_t>(rank));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double Median(const std::vector<double>& values) { return At(0.5, values); }

// Hand-offs beyond the first of each pair of workers that a link is fitted to.
constexpr size_t kMinHandoffs = 8;
// Seconds that bytes have to make of a difference, to be told from how exactly times are kept.
constexpr double kTimer = 1e-6;

struct Link {
  double latency = 0;
  double bandwidth = 0;
};

// Least squares of seconds = latency + bytes / bandwidth, neither of them negative. FAILED_PRECONDITION if
// the hand-offs do not tell a rate: then the slope lies within two standard errors of none.
absl::StatusOr<Link> FitLink(const std::vector<Profiler::Handoff>& handoffs) {
  if (handoffs.size() < kMinHandoffs) {
    return absl::FailedPreconditionError(
        fmt::format("{} hand-offs beyond the first of each pair of workers are too few, {} are needed",
                    handoffs.size(), kMinHandoffs));
  }
  const auto count = static_cast<double>(handoffs.size());
  Profiler::Handoff mean;
  double least = handoffs.front().bytes, most = least, squares = 0;
  for (const Profiler::Handoff& one : handoffs) {
    mean.bytes += one.bytes / count;
    mean.seconds += one.seconds / count;
    least = std::min(least, one.bytes);
    most = std::max(most, one.bytes);
    squares += one.bytes * one.bytes;
  }
  double spread = 0, together = 0;
  for (const Profiler::Handoff& one : handoffs) {
    spread += (one.bytes - mean.bytes) * (one.bytes - mean.bytes);
    together += (one.bytes - mean.bytes) * (one.seconds - mean.seconds);
  }
  double slope = spread > 0 ? together / spread : 0;
  double rest = 0;
  for (const Profiler::Handoff& one : handoffs) {
    const double off = one.seconds - mean.seconds - slope * (one.bytes - mean.bytes);
    rest += off * off;
  }
  if (slope * (most - least) < kTimer || slope <= 2 * std::sqrt(rest / (count - 2) / spread)) {
    return absl::FailedPreconditionError("hand-offs of more bytes did not take longer");
  }
  if (mean.seconds >= slope * mean.bytes) {
    return Link{.latency = mean.seconds - slope * mean.bytes, .bandwidth = 1 / slope};
  }
  slope = (together + count * mean.bytes * mean.seconds) / squares;  // through the origin
  return Link{.latency = 0, .bandwidth = 1 / slope};
}

}  // namespace

void Profiler::Add(const RequestRecord& record) {
  const Outcome& outcome = record.outcome;
  if (!outcome.status.ok() || !outcome.finished.has_value() || outcome.tokens < 1) return;
  if (samples_.size() >= kMaxSamples) return;
  const v1::Finished& finished = *outcome.finished;
  const v1::Timing& timing = finished.timing();
  Sample sample;
  sample.first_token = absl::ToDoubleSeconds(outcome.first_token - absl::UnixEpoch());
  sample.last_token = absl::ToDoubleSeconds(outcome.last_token - absl::UnixEpoch());
  sample.prompt_tokens = record.prompt_tokens;
  sample.output_tokens = outcome.tokens;
  // KV that the decode worker had is not shipped. A prefill worker reports the tokens it had beyond that; if
  // none, it had what placement believed, and at most as much as the decode worker.
  const int64_t decode_cached = finished.usage().decode_cached_tokens();
  const int64_t prefill_cached = finished.usage().prefill_cached_tokens();
  const bool local = finished.relay().prefill_worker().empty();
  int64_t cached = decode_cached;
  if (!local && prefill_cached > 0) {
    cached += prefill_cached;
  } else if (!local) {
    cached = std::min(cached, int64_t{finished.placement().prefill_matched_blocks()} * kBlockTokens);
  }
  sample.cached_tokens = std::min(record.prompt_tokens - 1, cached);
  sample.uncached_tokens = record.prompt_tokens - sample.cached_tokens;
  sample.prefill_seconds = timing.prefill_seconds();
  sample.transfer_seconds = timing.transfer_seconds();
  sample.shipped_bytes = static_cast<double>(finished.relay().shipped_bytes());
  sample.pair = {finished.relay().prefill_worker(), finished.relay().decode_worker()};
  sample.shipped_tokens = local ? 0 : static_cast<double>(record.prompt_tokens - decode_cached);
  sample.predicted_ttft = finished.placement().predicted_ttft_seconds();
  sample.ttft = timing.ttft_seconds() - timing.admit_seconds();
  sample.overhead = absl::ToDoubleSeconds(outcome.first_token - outcome.sent) -
                    timing.prefill_queue_seconds() - timing.prefill_seconds() - timing.transfer_seconds();
  samples_.push_back(sample);
}

// KV leaves while its prompt is computed: what is seen of the link is the part that this did not hide. The
// first hand-off of a pair of workers also makes their connection.
std::vector<Profiler::Handoff> Profiler::Handoffs() const {
  std::map<std::pair<std::string, std::string>, const Sample*> first;
  for (const Sample& sample : samples_) {
    if (sample.shipped_bytes <= 0) continue;
    const Sample*& earliest = first[sample.pair];
    if (earliest == nullptr || sample.first_token < earliest->first_token) earliest = &sample;
  }
  std::vector<Handoff> handoffs;
  for (const Sample& sample : samples_) {
    if (sample.shipped_bytes <= 0 || first[sample.pair] == &sample) continue;
    handoffs.push_back({.bytes = sample.shipped_bytes, .seconds = std::max(0.0, sample.transfer_seconds)});
  }
  return handoffs;
}

absl::StatusOr<nlohmann::ordered_json> Profiler::Fit() const {
  if (samples_.size() < kMinSamples) {
    return absl::FailedPreconditionError(fmt::format(
        "a profile needs at least {} answered requests, there were {}", kMinSamples, samples_.size()));
  }
  forecast::PrefillForecast prefill({.base = 1e-3, .token = 1e-5, .pair = 1e-10}, forecast::Of::kMany);
  forecast::LinearFit<3> step({1e-3, 1e-5, 1e-9}, {1, 8, 8e3}, forecast::Of::kMany);
  std::vector<double> prefill_errors, step_errors, ttft_errors, bytes_per_token, overheads;
  struct Step {
    forecast::LinearFit<3>::Features features;
    double seconds;
  };
  std::vector<Step> steps;
  for (const Sample& one : samples_) {
    const double lasted = one.last_token - one.first_token;
    if (one.output_tokens < 2 || lasted <= 0) continue;
    double batch = 0, context = 0;
    for (const Sample& other : samples_) {
      const double together =
          std::min(one.last_token, other.last_token) - std::max(one.first_token, other.first_token);
      if (together <= 0) continue;
      const double share = together / lasted;
      batch += share;
      context += share * static_cast<double>(other.prompt_tokens + other.output_tokens / 2);
    }
    steps.push_back({{1, std::max(1.0, batch / decode_workers_), context / decode_workers_},
                     lasted / static_cast<double>(one.output_tokens - 1)});
  }
  if (steps.size() < kMinSamples) {
    return absl::FailedPreconditionError(
        "a profile needs answers of more than one token: raise --output-tokens");
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const Sample& sample : samples_) {
      prefill.Observe(sample.uncached_tokens, sample.cached_tokens, sample.prefill_seconds);
    }
    for (const Step& observed : steps) step.Observe(observed.features, observed.seconds);
  }
  const auto error = [](double predicted, double measured) {
    return std::abs(predicted - measured) / std::max(1e-9, measured);
  };
  for (const Sample& sample : samples_) {
    prefill_errors.push_back(
        error(prefill.Seconds(sample.uncached_tokens, sample.cached_tokens), sample.prefill_seconds));
    overheads.push_back(std::max(0.0, sample.overhead));
    if (sample.predicted_ttft > 0) ttft_errors.push_back(error(sample.predicted_ttft, sample.ttft));
    if (sample.shipped_bytes <= 0 || sample.shipped_tokens <= 0) continue;
    bytes_per_token.push_back(sample.shipped_bytes / sample.shipped_tokens);
  }
  for (const Step& observed : steps) {
    step_errors.push_back(error(step.Predict(observed.features), observed.seconds));
  }
  const forecast::PrefillCost cost = prefill.cost();
  if (cost.token <= 0 && cost.pair <= 0) {
    return absl::FailedPreconditionError(
        "no profile: longer prompts did not take longer to compute, so nothing tells what a token takes. "
        "Measure with more requests (--requests 200) and prompts of different lengths "
        "(--prompt-tokens uniform:16:1500)");
  }
  const forecast::LinearFit<3>::Features weights = step.weights();
  if (weights[1] <= 0 && weights[2] <= 0) {
    return absl::FailedPreconditionError(
        "no profile: decode steps with more answers, or longer ones, did not take longer, so nothing tells "
        "how many answers a worker can run. Measure with more answers at a time (--concurrency 8) and "
        "prompts of different lengths (--prompt-tokens uniform:16:1500)");
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  json["comment"] = fmt::format(
      "fitted to {} requests; median error: prefill {:.0f}%, step {:.0f}%; blocks per worker are not "
      "measured: "
      "set them to what the workers' KV memory holds",
      samples_.size(), 100 * Median(prefill_errors), 100 * Median(step_errors));
  json["prefill_workers"] = std::max(1, prefill_workers_);
  json["decode_workers"] = std::max(1, decode_workers_);
  json["prefill_base"] = cost.base;
  json["prefill_token"] = cost.token;
  json["prefill_pair"] = cost.pair;
  json["step_base"] = std::max(1e-6, weights[0]);
  json["step_sequence"] = weights[1];
  json["step_context"] = weights[2];
  std::string about_link;
  if (const absl::StatusOr<Link> link = FitLink(Handoffs()); link.ok()) {
    json["link_bandwidth"] = link->bandwidth;
    json["link_latency"] = link->latency;
    about_link = "link_bandwidth is an upper estimate: KV travels while prompts are computed";
  } else {
    about_link = fmt::format("the link was not measured: {}", std::string(link.status().message()));
  }
  json["comment"] = fmt::format("{}; {}", json["comment"].get<std::string>(), about_link);
  if (!bytes_per_token.empty()) json["kv_bytes_per_token"] = std::llround(Median(bytes_per_token));
  json["request_overhead"] = Median(overheads);
  json["decode_cache"] = true;
  json["block_tokens"] = int64_t{kBlockTokens};
  json["prefill_blocks"] = kAssumedTokens / kBlockTokens;
  json["decode_blocks"] = kAssumedTokens / kBlockTokens;
  if (!ttft_errors.empty()) {
    json["comment"] = fmt::format(
        "{}; the router's prediction of TTFT was off by {:.0f}% (median) and {:.0f}% (p90)",
        json["comment"].get<std::string>(), 100 * Median(ttft_errors), 100 * At(0.9, ttft_errors));
  }
  return json;
}

}  // namespace baton::lab::bench
