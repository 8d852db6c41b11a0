#include "lab/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/ids.h"

namespace baton::lab::bench {
namespace {

class Synthetic final : public Workload {
 public:
  explicit Synthetic(const SyntheticSettings& settings)
      : settings_(settings), arrivals_(settings.arrivals, settings.rate.value_or(1), settings.seed) {}

  std::optional<Conversation> Next() override {
    const uint64_t seed = settings_.seed;
    Conversation conversation;
    conversation.index = settings_.first_index + count_++;
    if (settings_.rate.has_value()) conversation.arrival = arrivals_.Next();
    for (int k = 0; k < settings_.turns; ++k) {
      // Unique over conversations and turns.
      const uint64_t id = conversation.index * static_cast<uint64_t>(settings_.turns) + k;
      Turn turn;
      if (k == 0 && settings_.shared_prefix_tokens > 0) {
        const double draw = Uniform(seed, Purpose::kPrefixGroup, conversation.index);
        turn.segments.push_back({Purpose::kPrefixTokens,
                                 static_cast<uint64_t>(draw * settings_.prefix_groups),
                                 settings_.shared_prefix_tokens});
      }
      turn.segments.push_back(
          {Purpose::kTurnTokens, id, settings_.prompt.SampleCount(seed, Purpose::kPromptLength, id)});
      turn.output_tokens = settings_.output.SampleCount(seed, Purpose::kOutputLength, id);
      if (k > 0) turn.think = absl::Seconds(settings_.think_seconds.Sample(seed, Purpose::kThink, id));
      conversation.turns.push_back(std::move(turn));
    }
    return conversation;
  }

 private:
  const SyntheticSettings settings_;
  Arrivals arrivals_;
  uint64_t count_ = 0;
};

class Trace final : public Workload {
 public:
  Trace(std::vector<TraceEntry> entries, const TraceSettings& settings)
      : entries_(std::move(entries)), settings_(settings) {
    // Spreading moves arrivals past one another, and a generator hands them out in order.
    arrivals_ms_.reserve(entries_.size());
    for (size_t i = 0; i < entries_.size(); ++i) arrivals_ms_.emplace_back(ArrivalMs(i), i);
    std::sort(arrivals_ms_.begin(), arrivals_ms_.end());
  }

  std::optional<Conversation> Next() override {
    if (next_ >= arrivals_ms_.size()) return std::nullopt;
    const auto [arrival_ms, index] = arrivals_ms_[next_++];
    const TraceEntry& entry = entries_[index];
    Conversation conversation;
    conversation.index = index;
    conversation.arrival = absl::Milliseconds((arrival_ms - arrivals_ms_.front().first) / settings_.speed);
    Turn turn;
    int64_t left = Scaled(entry.input_tokens);
    for (const uint64_t id : entry.hash_ids) {
      const int64_t tokens = std::min(left, settings_.block_tokens);
      if (tokens <= 0) break;
      turn.segments.push_back({Purpose::kTraceTokens, id, tokens});
      left -= tokens;
    }
    turn.output_tokens = std::max<int64_t>(1, Scaled(entry.output_tokens));
    conversation.turns.push_back(std::move(turn));
    return conversation;
  }

 private:
  double ArrivalMs(size_t index) const {
    const double stamp = entries_[index].timestamp_ms;
    if (!settings_.spread) return stamp;
    // A stamp of 5,999 is one of 6,000.
    const double bucket = std::round(stamp / kTraceBucketMs) * kTraceBucketMs;
    return bucket + kTraceBucketMs * Uniform(settings_.seed, Purpose::kBucket, index);
  }
  // Rounded up, so that a partly filled block stays one.
  int64_t Scaled(int64_t tokens) const {
    return (tokens * settings_.block_tokens + kTraceBlockTokens - 1) / kTraceBlockTokens;
  }

  const std::vector<TraceEntry> entries_;
  const TraceSettings settings_;
  std::vector<std::pair<double, size_t>> arrivals_ms_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Workload> MakeSynthetic(const SyntheticSettings& settings) {
  return std::make_unique<Synthetic>(settings);
}

std::unique_ptr<Workload> MakeTrace(std::vector<TraceEntry> entries, const TraceSettings& settings) {
  return std::make_unique<Trace>(std::move(entries), settings);
}

int64_t FittingBlockTokens(const std::vector<TraceEntry>& entries, int64_t context_tokens) {
  int64_t longest = 1;
  for (const TraceEntry& entry : entries)
    longest = std::max(longest, entry.input_tokens + entry.output_tokens);
  // Prompt and answer are both rounded up.
  int64_t block = std::min(kTraceBlockTokens, (context_tokens - 2) * kTraceBlockTokens / longest);
  if (block >= kBlockTokens) block -= block % kBlockTokens;
  return std::max<int64_t>(1, block);
}

}  // namespace baton::lab::bench
