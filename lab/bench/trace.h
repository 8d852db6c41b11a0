// Request traces in the format of kvcache-ai/Mooncake (FAST25-release/traces): one JSON object a line with
// `timestamp` (ms), `input_length`, `output_length` (tokens) and `hash_ids`, one id per block of 512 prompt
// tokens, where equal ids mean an equal prefix up to and including that block. Files come from anywhere:
// every line is checked, and a bad one is named by its number. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::lab::bench {

inline constexpr int64_t kTraceBlockTokens = 512;
// Stamps of the conversation trace are rounded to this.
inline constexpr double kTraceBucketMs = 3000;

struct TraceEntry {
  double timestamp_ms = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<uint64_t> hash_ids;
};

// `number` is for the error. INVALID_ARGUMENT: "line 7: ...".
absl::StatusOr<TraceEntry> ParseTraceLine(std::string_view line, int64_t number);

// In the order of their stamps; blank lines are skipped. At most `limit` entries, 0 for all. NOT_FOUND if the
// file can't be read; INVALID_ARGUMENT if a line is bad or there is none.
absl::StatusOr<std::vector<TraceEntry>> ReadTrace(const std::string& path, int64_t limit);

// True if most stamps are rounded to whole buckets (within 5 ms): such arrivals are spread over their bucket.
bool LooksBucketed(const std::vector<TraceEntry>& entries);

}  // namespace baton::lab::bench
