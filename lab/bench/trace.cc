#include "lab/bench/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/json/strict_json.h"

namespace baton::lab::bench {
namespace {

using Json = nlohmann::json;

// Ten million tokens: twenty thousand block ids on a line, ten times the longest context there is.
constexpr int64_t kMaxTokens = 10'000'000;
constexpr double kMaxMs = 1e12;
constexpr double kBucketToleranceMs = 5;

absl::Status Bad(int64_t number, const std::string& what) {
  return absl::InvalidArgumentError(fmt::format("line {}: {}", number, what));
}

// A whole number in [min, max]; -1 otherwise.
int64_t WholeNumber(const Json& json, const char* key, int64_t min, int64_t max) {
  const auto entry = json.find(key);
  if (entry == json.end() || !entry->is_number_integer()) return -1;
  if (entry->is_number_unsigned() && entry->get<uint64_t>() > static_cast<uint64_t>(max)) return -1;
  const auto value = entry->get<int64_t>();
  return value < min || value > max ? -1 : value;
}

}  // namespace

absl::StatusOr<TraceEntry> ParseTraceLine(std::string_view line, int64_t number) {
  const absl::StatusOr<Json> parsed = json::Parse<Json>(line);
  if (!parsed.ok()) {
    return Bad(number, fmt::format("not JSON of a trace: {}", std::string(parsed.status().message())));
  }
  const Json& json = *parsed;
  if (!json.is_object()) return Bad(number, "not a JSON object");
  TraceEntry entry;
  const auto stamp = json.find("timestamp");
  if (stamp == json.end() || !stamp->is_number())
    return Bad(number, "timestamp must be a number of milliseconds");
  entry.timestamp_ms = stamp->get<double>();
  if (!(entry.timestamp_ms >= 0 && entry.timestamp_ms <= kMaxMs)) {
    return Bad(number, fmt::format("timestamp must be in [0, {:.0f}] ms", kMaxMs));
  }
  entry.input_tokens = WholeNumber(json, "input_length", 1, kMaxTokens);
  if (entry.input_tokens < 0) {
    return Bad(number, fmt::format("input_length must be a whole number in [1, {}]", kMaxTokens));
  }
  entry.output_tokens = WholeNumber(json, "output_length", 0, kMaxTokens);
  if (entry.output_tokens < 0) {
    return Bad(number, fmt::format("output_length must be a whole number in [0, {}]", kMaxTokens));
  }
  const auto ids = json.find("hash_ids");
  if (ids == json.end() || !ids->is_array()) return Bad(number, "hash_ids must be an array");
  const int64_t blocks = (entry.input_tokens + kTraceBlockTokens - 1) / kTraceBlockTokens;
  if (static_cast<int64_t>(ids->size()) != blocks) {
    return Bad(number, fmt::format("input_length {} needs {} hash_ids, one per {} tokens, but has {}",
                                   entry.input_tokens, blocks, kTraceBlockTokens, ids->size()));
  }
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned()) return Bad(number, "hash_ids must be whole numbers of at least 0");
    entry.hash_ids.push_back(id.get<uint64_t>());
  }
  return entry;
}

absl::StatusOr<std::vector<TraceEntry>> ReadTrace(const std::string& path, int64_t limit) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(fmt::format("can't read the trace {}", path));
  std::vector<TraceEntry> entries;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (limit > 0 && static_cast<int64_t>(entries.size()) >= limit) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<TraceEntry> entry = ParseTraceLine(line, number);
    if (!entry.ok())
      return absl::InvalidArgumentError(fmt::format("{}, {}", path, std::string(entry.status().message())));
    entries.push_back(*std::move(entry));
  }
  if (file.bad()) return absl::DataLossError(fmt::format("{} can't be read to its end", path));
  if (entries.empty()) return absl::InvalidArgumentError(fmt::format("{} has no requests", path));
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TraceEntry& a, const TraceEntry& b) { return a.timestamp_ms < b.timestamp_ms; });
  return entries;
}

bool LooksBucketed(const std::vector<TraceEntry>& entries) {
  int64_t rounded = 0;
  for (const TraceEntry& entry : entries) {
    const double off = std::remainder(entry.timestamp_ms, kTraceBucketMs);
    rounded += std::abs(off) <= kBucketToleranceMs;
  }
  return 2 * rounded > static_cast<int64_t>(entries.size());
}

}  // namespace baton::lab::bench
