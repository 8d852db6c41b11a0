// Load: the requests of a simulation, from a trace scaled in rate and in users. A pure function of the trace,
// the scale and the seed.
//
// Its speed is how many times faster arrivals come: more load from the same users. Its copies are so many
// times the users: the trace laid over itself, shifted in time, with other prefixes; what most requests begin
// with (a common system prompt) stays common.
//
// Stamps that are rounded to buckets of 3 s are spread over them. A trace knows prefixes by 512 tokens;
// workers with smaller blocks find the same prefix also in a prompt's last, partial block.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/bench/trace.h"
#include "protocol/block_hash.h"

namespace baton::lab::simulate {

struct Request {
  double arrival = 0;  // seconds
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<kv::BlockHash> chain;  // of its full blocks: a tail that fills none is never cached
};

struct Scale {
  double speed = 1;
  int copies = 1;
  uint64_t seed = 0;
};

// In the order of arrival. Chains are of blocks of `block_tokens`, which divides a trace's block.
std::vector<Request> MakeLoad(const std::vector<bench::TraceEntry>& trace, const Scale& scale,
                              int64_t block_tokens = bench::kTraceBlockTokens);

// Requests per second of a trace as it is.
double RateOf(const std::vector<bench::TraceEntry>& trace);

}  // namespace baton::lab::simulate
