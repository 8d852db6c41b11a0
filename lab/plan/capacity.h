// Capacity: how many prefill and decode workers a load needs, and why. Formulas, no simulation: `baton
// simulate` plays a trace through the real placement. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/bench/distribution.h"
#include "lab/plan/profile.h"

namespace baton::lab::plan {

struct Load {
  // Requests per second, arriving at random (Poisson).
  double rate = 0;
  bench::Distribution prompt_tokens = bench::Distribution::Fixed(1);
  bench::Distribution output_tokens = bench::Distribution::Fixed(1);
  // Share of each prompt found in caches.
  double hit_rate = 0;
  // And the share of it that is read from the prefill worker's disk, at so many bytes per second.
  double disk_hit_rate = 0;
  double disk_bandwidth = 2e9;
  // The TTFT that 95% of requests should meet.
  double slo_ttft = 2;
  double slo_tpot = 0.05;
  // KV memory of a decode worker.
  int64_t kv_bytes = 0;
  // Workers of each pool that may be missing.
  int spare = 1;
};

struct PrefillPool {
  int workers = 0;  // with the spare ones
  double seconds_mean = 0, seconds_p95 = 0;
  double utilization = 0;  // without the spare ones
  double wait_p95 = 0;
  double ttft_p95 = 0;
};

struct DecodePool {
  int workers = 0;
  double batch = 0;  // mean sequences of a worker, without the spare ones
  double tpot = 0;
  double kv_used = 0;  // share of the memory
  // The batches at which each limit would be met.
  double batch_by_tpot = 0;
  double batch_by_kv = 0;
  bool bound_by_kv = false;
};

struct Pools {
  PrefillPool prefill;
  DecodePool decode;
  // Bytes per second out of one prefill worker, and share of its link: 0 if the profile has no link.
  double ship_rate = 0;
  double link_used = 0;
  double ship_seconds = 0;
  // Bytes per second from one prefill worker's disk, and its used share.
  double disk_rate = 0;
  double disk_used = 0;
  double disk_seconds = 0;  // of the longest 5% of prompts, the least
  double uncached_mean = 0, context_mean = 0, output_mean = 0;
};

// `profile` is one that ParseProfile takes. FAILED_PRECONDITION says which objective no number of workers
// meets.
absl::StatusOr<Pools> PlanPools(const Profile& profile, const Load& load);

// P(a request waits) in a queue with `servers` and `offered` load (in servers): Erlang's C formula.
double ErlangC(int servers, double offered);

}  // namespace baton::lab::plan
