#include "common/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/sampling/softmax.h"
#include "fmt/format.h"

namespace baton::sampling {
namespace {

// Enough for nearly every top-p; whoever needs more pays for another pass.
constexpr int64_t kFirstHead = 256;
constexpr int64_t kHeadGrowth = 8;

absl::Status NothingLeft(size_t vocabulary) {
  return absl::InternalError(fmt::format("no token can be drawn: all {} logits are NaN or -inf", vocabulary));
}

TokenId LowestIdOf(std::span<const float> logits, float value) {
  return TokenId(static_cast<int32_t>(std::find(logits.begin(), logits.end(), value) - logits.begin()));
}

}  // namespace

void History::AddPrompt(std::span<const TokenId> tokens) { seen_.insert(tokens.begin(), tokens.end()); }

void History::AddOutput(TokenId token) {
  seen_.insert(token);
  ++output_counts_[token];
}

std::span<const float> Sampler::Adjust(std::span<const float> logits, const Params& params,
                                       const History& history) {
  const bool repetition = params.repetition_penalty != 1;
  const bool counts = params.presence_penalty != 0 || params.frequency_penalty != 0;
  constexpr float kLargest = std::numeric_limits<float>::max();
  const bool overflown = Max(logits) > kLargest;
  if (!repetition && !counts && params.logit_bias.empty() && !overflown) return logits;

  adjusted_.assign(logits.begin(), logits.end());
  if (overflown) {
    for (float& logit : adjusted_) logit = logit > kLargest ? kLargest : logit;
  }
  const auto at = [&](TokenId token) -> float& {
    BATON_CHECK(token.value() >= 0 && token.value() < std::ssize(adjusted_)) << "token " << token.value();
    return adjusted_[token.value()];
  };
  if (repetition) {
    for (const TokenId token : history.seen_) {
      float& logit = at(token);
      logit = logit < 0 ? logit * params.repetition_penalty
                        : std::min(logit / params.repetition_penalty, kLargest);
    }
  }
  if (counts) {
    for (const auto& [token, count] : history.output_counts_) {
      at(token) -= params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
    }
  }
  for (const auto& [token, bias] : params.logit_bias) at(token) += bias;
  return adjusted_;
}

void Sampler::SelectHead(std::span<const float> logits, int64_t count) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  head_.clear();
  // Whoever does not beat the last of the best `count` so far is passed over. An equal one has a higher id,
  // so it does not. Cutting back only when twice as many are there makes the selection linear.
  float threshold = -std::numeric_limits<float>::infinity();
  const size_t limit = static_cast<size_t>(count);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > threshold)) continue;
    head_.push_back({logits[i], static_cast<int32_t>(i)});
    if (head_.size() == 2 * limit) {
      std::nth_element(head_.begin(), head_.begin() + (limit - 1), head_.end(), before);
      head_.resize(limit);
      threshold = head_.back().logit;
    }
  }
  if (head_.size() > limit) {
    std::nth_element(head_.begin(), head_.begin() + (limit - 1), head_.end(), before);
    head_.resize(limit);
  }
  std::sort(head_.begin(), head_.end(), before);
}

Sampler::Kept Sampler::Keep(std::span<const float> logits, float max, const Params& params, double until) {
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  const int64_t vocabulary = std::ssize(logits);
  const int64_t most = params.top_k > 0 ? std::min<int64_t>(params.top_k, vocabulary) : vocabulary;
  const bool whole = params.top_k == 0 || most == vocabulary;
  // Without top-k the mass is that of all tokens, whether they are looked at or not.
  const double all = whole ? WeightSum(logits, max, inverse_temperature) : 0;
  const bool cuts = params.top_p < 1 || params.min_p > 0;

  for (int64_t size = whole ? std::min(kFirstHead, most) : most;; size = std::min(size * kHeadGrowth, most)) {
    SelectHead(logits, size);
    double total = all;
    if (!whole) {
      for (const Candidate& candidate : head_) total += Weight(candidate.logit, max, inverse_temperature);
    }
    const double wanted = static_cast<double>(params.top_p) * total;
    Kept kept;
    bool ended = std::ssize(head_) < size || size == most;
    for (const Candidate& candidate : head_) {
      const double weight = Weight(candidate.logit, max, inverse_temperature);
      const bool cut = weight == 0 || (kept.count > 0 && params.top_p < 1 && kept.mass >= wanted) ||
                       weight < static_cast<double>(params.min_p);
      if (cut || (!cuts && kept.mass > until * total)) {
        ended = true;
        break;
      }
      kept.mass += weight;
      ++kept.count;
    }
    if (!ended) continue;
    if (!cuts) kept.mass = total;
    return kept;
  }
}

absl::StatusOr<std::vector<TokenProbability>> Sampler::Distribution(std::span<const float> logits,
                                                                    const Params& params,
                                                                    const History& history) {
  const std::span<const float> adjusted = Adjust(logits, params, history);
  const float max = Max(adjusted);
  if (std::isinf(max)) return NothingLeft(logits.size());
  if (params.temperature == 0) return std::vector<TokenProbability>{{LowestIdOf(adjusted, max), 1.0}};
  const Kept kept = Keep(adjusted, max, params, /*until=*/std::numeric_limits<double>::infinity());
  std::vector<TokenProbability> distribution;
  for (const Candidate& candidate : std::span(head_).first(kept.count)) {
    const double weight = Weight(candidate.logit, max, 1.0 / static_cast<double>(params.temperature));
    distribution.push_back({TokenId(candidate.id), weight / kept.mass});
  }
  return distribution;
}

absl::StatusOr<Draw> Sampler::Sample(std::span<const float> logits, const Params& params,
                                     const History& history, uint64_t position, std::optional<int> logprobs) {
  const std::span<const float> adjusted = Adjust(logits, params, history);
  const float max = Max(adjusted);
  if (std::isinf(max)) return NothingLeft(logits.size());

  Draw draw;
  if (params.temperature == 0) {
    draw.token = LowestIdOf(adjusted, max);
  } else {
    const double uniform = UniformAt(params.seed, position);
    const Kept kept = Keep(adjusted, max, params, uniform);
    const double target = uniform * kept.mass;
    double passed = 0;
    for (const Candidate& candidate : std::span(head_).first(kept.count)) {
      // Should rounding leave the target unreached, it is the last one.
      draw.token = TokenId(candidate.id);
      passed += Weight(candidate.logit, max, 1.0 / static_cast<double>(params.temperature));
      if (passed > target) break;
    }
  }

  if (logprobs) {
    const double log_sum = std::log(WeightSum(adjusted, max, 1.0));
    const auto logprob = [&](float logit) {
      return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_sum);
    };
    draw.logprob = logprob(adjusted[draw.token.value()]);
    if (*logprobs > 0) {
      SelectHead(adjusted, *logprobs);
      for (const Candidate& candidate : head_)
        draw.top.push_back({TokenId(candidate.id), logprob(candidate.logit)});
    }
  }
  return draw;
}

}  // namespace baton::sampling
