// Measures: what a simulated run came to. Percentiles are by nearest rank over all requests that were served.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "lab/simulate/simulation.h"

namespace baton::lab::simulate {

struct Slo {
  double ttft = forecast::kDefaultSloTtft;
  double tpot = 50e-3;
};

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0, mean = 0;
};

struct Measures {
  std::string policy;
  int64_t requests = 0;
  int64_t refused = 0;
  int64_t too_long = 0;      // of those: for any worker's cache
  double offered_rate = 0;   // requests per second
  double goodput = 0;        // requests per second within the SLO
  double good_share = 0;     // of the requests
  double ttft_share = 0;     // that met the TTFT's half of it
  double hit_rate = 0;       // prompt tokens that were not computed
  double hit_share = 0;      // of what one infinite cache would have given to the requests that were served
  double fetched_share = 0;  // prompt tokens that came from a peer,
  double loaded_share = 0;   // or from the worker's own disk
  double local_share = 0;    // requests prefilled on their decode worker
  Percentiles ttft, tpot, wait;
  double imbalance = 0;    // most over mean of the prefill workers' busy seconds
  double utilisation = 0;  // of the prefill workers, over the time of arrivals
  std::map<std::string, int64_t> reasons;
};

Percentiles PercentilesOf(std::vector<double> values);

// `block_tokens`: of the fleet's blocks, in which the load's chains are.
Measures Measure(const std::string& policy, const RunResult& run, const Slo& slo, int64_t block_tokens);

// One infinite cache: the share of prompt tokens that it would save, in whatever order requests come, because
// each block is computed once.
class IdealCache {
 public:
  explicit IdealCache(int64_t block_tokens) : block_tokens_(block_tokens) {}
  void Add(const Request& request);
  // In [0, 1]; 0 without requests.
  double hit_rate() const;

 private:
  const int64_t block_tokens_;
  absl::flat_hash_set<kv::BlockHash> seen_;
  int64_t tokens_ = 0;
  int64_t reused_ = 0;
};

double IdealHitRate(const std::vector<Request>& load, int64_t block_tokens);

}  // namespace baton::lab::simulate
