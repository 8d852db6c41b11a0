#include "lab/simulate/load.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace baton::lab::simulate {
namespace {

using bench::TraceEntry;

// The hash of a part of the trace's block.
kv::BlockHash HashOf(uint64_t id, uint32_t copy, uint32_t part) {
  const auto draw =
      Philox4x32({static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), copy, part}, {1, 2});
  char bytes[kv::BlockHash::kBytes];
  std::memcpy(bytes, draw.data(), sizeof(bytes));
  return kv::BlockHash::FromBytes({bytes, sizeof(bytes)});
}

// Ids that lead at least half of all requests, and those that always follow them: a system prompt.
absl::flat_hash_set<uint64_t> CommonIds(const std::vector<TraceEntry>& trace) {
  absl::flat_hash_map<uint64_t, size_t> requests;
  for (const TraceEntry& entry : trace) {
    for (const uint64_t id : entry.hash_ids) ++requests[id];
  }
  absl::flat_hash_set<uint64_t> common;
  for (const auto& [id, count] : requests) {
    if (2 * count >= trace.size()) common.insert(id);
  }
  return common;
}

double Seconds(const std::vector<TraceEntry>& trace, bool bucketed) {
  return (trace.back().timestamp_ms - trace.front().timestamp_ms + (bucketed ? bench::kTraceBucketMs : 1)) /
         1e3;
}

}  // namespace

double RateOf(const std::vector<TraceEntry>& trace) {
  return static_cast<double>(trace.size()) / Seconds(trace, LooksBucketed(trace));
}

std::vector<Request> MakeLoad(const std::vector<TraceEntry>& trace, const Scale& scale,
                              int64_t block_tokens) {
  BATON_CHECK(block_tokens > 0 && bench::kTraceBlockTokens % block_tokens == 0);
  const int64_t parts = bench::kTraceBlockTokens / block_tokens;
  const bool bucketed = LooksBucketed(trace);
  const double seconds = Seconds(trace, bucketed);
  const absl::flat_hash_set<uint64_t> common = CommonIds(trace);
  std::vector<Request> load;
  load.reserve(trace.size() * scale.copies);
  uint64_t draws = 0;
  for (int copy = 0; copy < scale.copies; ++copy) {
    const double shift = seconds * copy / scale.copies;
    for (const TraceEntry& entry : trace) {
      double at = (entry.timestamp_ms - trace.front().timestamp_ms) / 1e3;
      if (bucketed) at += UniformAt(scale.seed, draws++) * bench::kTraceBucketMs / 1e3;
      at = std::fmod(at + shift, seconds);
      Request& request = load.emplace_back();
      request.arrival = at / scale.speed;
      request.prompt_tokens = entry.input_tokens;
      request.output_tokens = std::max<int64_t>(1, entry.output_tokens);
      const int64_t full = entry.input_tokens / block_tokens;
      request.chain.reserve(full);
      for (int64_t block = 0; block < full; ++block) {
        const uint64_t id = entry.hash_ids[block / parts];
        request.chain.push_back(HashOf(id, common.contains(id) ? 0 : static_cast<uint32_t>(copy),
                                       static_cast<uint32_t>(block % parts)));
      }
    }
  }
  std::stable_sort(load.begin(), load.end(),
                   [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
  return load;
}

}  // namespace baton::lab::simulate
