#include "lab/simulate/measures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton::lab::simulate {

Percentiles PercentilesOf(std::vector<double> values) {
  Percentiles percentiles;
  if (values.empty()) return percentiles;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[static_cast<size_t>(std::max<int64_t>(1, rank) - 1)];
  };
  percentiles.p50 = at(0.5);
  percentiles.p90 = at(0.9);
  percentiles.p99 = at(0.99);
  percentiles.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return percentiles;
}

Measures Measure(const std::string& policy, const RunResult& run, const Slo& slo, int64_t block_tokens) {
  Measures measures;
  IdealCache ideal(block_tokens);
  measures.policy = policy;
  std::vector<double> ttft, tpot, wait;
  int64_t good = 0, in_time = 0, local = 0;
  double prompt_tokens = 0, cached_tokens = 0, fetched_tokens = 0, loaded_tokens = 0;
  for (const RequestRecord& record : run.records) {
    ++measures.requests;
    if (record.refused) {
      ++measures.refused;
      measures.too_long += record.too_long;
      continue;
    }
    // A refused request finds nothing cached, and leaves nothing to others.
    ideal.Add(*record.request);
    ttft.push_back(record.ttft());
    wait.push_back(record.began - record.request->arrival);
    if (record.request->output_tokens > 1) tpot.push_back(record.tpot());
    in_time += record.ttft() < slo.ttft;
    good += record.ttft() < slo.ttft && record.tpot() < slo.tpot;
    local += record.prefill < 0;
    prompt_tokens += static_cast<double>(record.request->prompt_tokens);
    cached_tokens += static_cast<double>(record.cached_tokens);
    fetched_tokens += static_cast<double>(record.fetched_tokens);
    loaded_tokens += static_cast<double>(record.loaded_tokens);
    ++measures.reasons[std::string(ReasonName(record.selection.reason))];
  }
  const double requests = std::max(1.0, static_cast<double>(measures.requests));
  const double seconds = std::max(1e-9, run.seconds);
  measures.offered_rate = requests / seconds;
  measures.goodput = static_cast<double>(good) / seconds;
  measures.good_share = static_cast<double>(good) / requests;
  measures.ttft_share = static_cast<double>(in_time) / requests;
  measures.hit_rate = cached_tokens / std::max(1.0, prompt_tokens);
  measures.hit_share = ideal.hit_rate() > 0 ? measures.hit_rate / ideal.hit_rate() : 1;
  measures.fetched_share = fetched_tokens / std::max(1.0, prompt_tokens);
  measures.loaded_share = loaded_tokens / std::max(1.0, prompt_tokens);
  measures.local_share = static_cast<double>(local) / requests;
  measures.ttft = PercentilesOf(std::move(ttft));
  measures.tpot = PercentilesOf(std::move(tpot));
  measures.wait = PercentilesOf(std::move(wait));
  const double busy = std::accumulate(run.prefill_busy.begin(), run.prefill_busy.end(), 0.0);
  const double workers = static_cast<double>(run.prefill_busy.size());
  if (busy > 0) {
    measures.imbalance = *std::max_element(run.prefill_busy.begin(), run.prefill_busy.end()) * workers / busy;
  }
  measures.utilisation = busy / workers / seconds;
  return measures;
}

void IdealCache::Add(const Request& request) {
  tokens_ += request.prompt_tokens;
  for (const kv::BlockHash& block : request.chain) {
    if (!seen_.insert(block).second) reused_ += block_tokens_;
  }
}

double IdealCache::hit_rate() const {
  return tokens_ > 0 ? static_cast<double>(reused_) / static_cast<double>(tokens_) : 0;
}

double IdealHitRate(const std::vector<Request>& load, int64_t block_tokens) {
  IdealCache cache(block_tokens);
  for (const Request& request : load) cache.Add(request);
  return cache.hit_rate();
}

}  // namespace baton::lab::simulate
