// Workload: what a load test asks for, conversation by conversation; a single request is a conversation of
// one turn. A pure function of its settings and seed: what comes back from the server changes nothing but the
// history that later turns repeat. Generators; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lab/bench/arrivals.h"
#include "lab/bench/distribution.h"
#include "lab/bench/prompt.h"
#include "lab/bench/trace.h"

namespace baton::lab::bench {

struct Turn {
  // Follows what was said before (all earlier turns and their answers).
  std::vector<Segment> segments;
  int64_t output_tokens = 1;
  // From the end of the answer before it.
  absl::Duration think;
};

struct Conversation {
  uint64_t index = 0;
  // Open loop: since the start. Closed loop: as soon as there is room.
  std::optional<absl::Duration> arrival;
  std::vector<Turn> turns;
};

class Workload {
 public:
  virtual ~Workload() = default;
  // The next conversation; empty when there are no more.
  virtual std::optional<Conversation> Next() = 0;
};

struct SyntheticSettings {
  uint64_t seed = 0;
  Distribution prompt = Distribution::Fixed(256);
  Distribution output = Distribution::Fixed(64);
  // Every conversation begins with the prefix of one of `prefix_groups` groups.
  int64_t shared_prefix_tokens = 0;
  int prefix_groups = 1;
  int turns = 1;
  Distribution think_seconds = Distribution::Fixed(0);
  // Open loop if set.
  std::optional<double> rate;
  Arrivals::Kind arrivals = Arrivals::Kind::kPoisson;
  // Conversations before the first one that is asked for: another range is other prompts with the same
  // prefixes.
  uint64_t first_index = 0;
};

// Endless.
std::unique_ptr<Workload> MakeSynthetic(const SyntheticSettings& settings);

struct TraceSettings {
  uint64_t seed = 0;
  // Times are divided by it.
  double speed = 1;
  // Tokens that stand for a block of 512; lengths shrink alike. 512: as recorded.
  int64_t block_tokens = kTraceBlockTokens;
  // Spread stamps that are rounded to buckets over them.
  bool spread = false;
};

std::unique_ptr<Workload> MakeTrace(std::vector<TraceEntry> entries, const TraceSettings& settings);

// The block size with which the longest request of the trace fits a context: a whole number of KV blocks
// where there is room for one, so that shared prefixes stay shared. At most 512, at least 1.
int64_t FittingBlockTokens(const std::vector<TraceEntry>& entries, int64_t context_tokens);

}  // namespace baton::lab::bench
