#include "cli/simulate/load.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/random.h"

namespace baton::cli::simulate {
namespace {

using bench::TraceEntry;

kv::BlockHash HashOf(uint64_t id, uint32_t copy) {
  const auto draw = Philox4x32({static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), copy, 0}, {1, 2});
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

std::vector<Request> MakeLoad(const std::vector<TraceEntry>& trace, const Scale& scale) {
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
      const auto full = static_cast<size_t>(entry.input_tokens / bench::kTraceBlockTokens);
      request.chain.reserve(full);
      for (const uint64_t id : std::span(entry.hash_ids).first(full)) {
        request.chain.push_back(HashOf(id, common.contains(id) ? 0 : static_cast<uint32_t>(copy)));
      }
    }
  }
  std::stable_sort(load.begin(), load.end(),
                   [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
  return load;
}

}  // namespace baton::cli::simulate
