// FleetModel: the machines of a simulation. Times are seconds, rates bytes per second; the defaults are the
// model that docs/routing.md compares policies in. Read from JSON by fleet_model.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::lab::simulate {

struct FleetModel {
  int prefill_workers = 8;
  int decode_workers = 6;
  // Prefill of u tokens after c cached ones: base + token * u + pair * u * (c + u / 2).
  double prefill_base = 15e-3;
  double prefill_token = 36e-6;
  double prefill_pair = 1e-9;
  // Decode step: base + sequence * batch + context * (tokens of context of all).
  double step_base = 9e-3;
  double step_sequence = 50e-6;
  double step_context = 50e-9;
  // Every worker's network, each way; and what a transfer takes besides.
  double link_bandwidth = 25e9;
  double link_latency = 2.5e-3;
  // Nodes with a faster link inside, over which the workers of each role are dealt in turn; 0: no such link.
  // And its rate, each way.
  int link_domains = 0;
  double near_bandwidth = 200e9;
  // Seconds of a request besides queues, prefill and transfer: admission, reservation, the first token's draw
  // and all the ways between processes. It delays the request before it is placed.
  double request_overhead = 0;
  int64_t kv_bytes_per_token = 128 << 10;
  int64_t block_tokens = 512;
  int64_t prefill_blocks = 4000;
  int64_t decode_blocks = 16000;
  // Every worker's disk for blocks, in bytes; 0: none. It reads at this rate (an NVMe drive on PCIe 4), and
  // at once writes at it, and a read read takes so long besides.
  int64_t disk_bytes = 0;
  double disk_bandwidth = 7e9;
  double disk_latency = 1e-3;
  // Decode workers keep the blocks of prompts as cached ones when they have ended, as real ones do.
  bool decode_cache = true;
  // Rows of one prompt in a decode step, and of all prompts and running requests together: the workers' own
  // --chunk-tokens and --token-budget.
  int64_t local_chunk_tokens = 256;
  int64_t local_token_budget = 512;
  // Requests on a decode worker at a time.
  int64_t decode_concurrency = 1024;
  // Times slower than the above, by prefill worker; the rest are 1. And when each joins; the rest at 0.
  std::vector<double> prefill_slowness;
  std::vector<double> prefill_joins;

  // Times vary: each prefill and each step takes exp(noise * g) times as long, g drawn from a normal
  // distribution. And once in so many seconds of work, on average, a decode worker stands still; 0: never.
  double noise = 0;
  double stall_every = 0;
  double stall_seconds = 2;
  // Workers measure themselves at their start, with the same noise: so many times what requests take, as a
  // bare step lacks what a request has besides. 0: they do not.
  double measured = 0;

  double Slowness(int worker) const {
    return worker < static_cast<int>(prefill_slowness.size()) ? prefill_slowness[worker] : 1;
  }
  double JoinsAt(int worker) const {
    return worker < static_cast<int>(prefill_joins.size()) ? prefill_joins[worker] : 0;
  }
  // The domain of the n-th worker of its role, from 1; 0: none.
  int Domain(int n) const { return link_domains > 0 ? 1 + n % link_domains : 0; }
  int64_t block_bytes() const { return block_tokens * kv_bytes_per_token; }
  // That a worker's disk holds.
  int64_t disk_blocks() const { return block_bytes() > 0 ? disk_bytes / block_bytes() : 0; }
  double PrefillSeconds(int64_t uncached, int64_t cached) const;
  double StepSeconds(int64_t batch, int64_t context) const;
};

// INVALID_ARGUMENT names the field. Fields that are left out keep their defaults; unknown ones are refused.
absl::StatusOr<FleetModel> ParseFleetModel(std::string_view json);
// NOT_FOUND if the file can't be read.
absl::StatusOr<FleetModel> ReadFleetModel(const std::string& path);
std::string ToJson(const FleetModel& model);

}  // namespace baton::lab::simulate
