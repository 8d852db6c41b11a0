#include "engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "engine/sampling/softmax.h"

namespace baton::sampling {
namespace {

TokenId LowestIdOf(std::span<const float> logits, float value) {
  return TokenId(static_cast<int32_t>(std::find(logits.begin(), logits.end(), value) - logits.begin()));
}

}  // namespace

absl::Status NothingLeft(int64_t vocabulary) {
  return absl::InternalError(fmt::format("no token can be drawn: all {} logits are NaN or -inf", vocabulary));
}

void History::AddPrompt(std::span<const TokenId> tokens) { seen_.insert(tokens.begin(), tokens.end()); }

void History::AddOutput(TokenId token) {
  seen_.insert(token);
  ++output_counts_[token];
}

std::span<const float> Sampler::Adjust(std::span<const float> logits, const Params& params,
                                       const History& history, std::span<const uint32_t> mask) {
  const bool repetition = params.repetition_penalty != 1;
  const bool counts = params.presence_penalty != 0 || params.frequency_penalty != 0;
  constexpr float kLargest = std::numeric_limits<float>::max();
  const bool overflown = Max(logits) > kLargest;
  if (!params.ChangesLogits() && !overflown && mask.empty()) return logits;

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
  if (!mask.empty()) {
    for (size_t id = 0; id < adjusted_.size(); ++id) {
      const bool allowed = id / 32 < mask.size() && (mask[id / 32] >> (id % 32) & 1) != 0;
      if (!allowed) adjusted_[id] = -std::numeric_limits<float>::infinity();
    }
  }
  return adjusted_;
}

void Sampler::SelectHead(std::span<const float> logits, int64_t count) {
  head_.clear();
  // Whoever does not beat the last of the best `count` so far is passed over. An equal one has a higher id,
  // so it does not. Cutting back only when twice as many are there makes the selection linear.
  float threshold = -std::numeric_limits<float>::infinity();
  const size_t limit = static_cast<size_t>(count);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > threshold)) continue;
    head_.push_back({logits[i], static_cast<int32_t>(i)});
    if (head_.size() == 2 * limit) {
      std::nth_element(head_.begin(), head_.begin() + (limit - 1), head_.end());
      head_.resize(limit);
      threshold = head_.back().logit;
    }
  }
  if (head_.size() > limit) {
    std::nth_element(head_.begin(), head_.begin() + (limit - 1), head_.end());
    head_.resize(limit);
  }
  std::sort(head_.begin(), head_.end());
}

double Sampler::CutHead(float max, const Params& params) {
  double total = 0;
  for (const Candidate& candidate : head_) total += Weight(candidate.logit, max, params.InverseTemperature());
  const Cut cut = params.CutOf(total);
  double kept = 0;
  for (size_t i = 0; i < head_.size(); ++i) {
    const double weight = Weight(head_[i].logit, max, params.InverseTemperature());
    if (cut.EndsBefore(weight, kept)) {
      head_.resize(i);
      break;
    }
    kept += weight;
  }
  return kept;
}

absl::StatusOr<std::vector<TokenProbability>> Sampler::Distribution(std::span<const float> logits,
                                                                    const Params& params,
                                                                    const History& history) {
  const std::span<const float> adjusted = Adjust(logits, params, history);
  const float max = Max(adjusted);
  if (std::isinf(max)) return NothingLeft(std::ssize(logits));
  if (params.temperature == 0) return std::vector<TokenProbability>{{LowestIdOf(adjusted, max), 1.0}};
  double mass = 0;
  if (params.top_k > 0) {
    SelectHead(adjusted, params.top_k);
    mass = CutHead(max, params);
  } else {
    ranking_.Rank(adjusted, max, params.InverseTemperature());
    mass = ranking_.Keep(params.CutOf(ranking_.total()));
    head_ = ranking_.Kept();
  }
  std::vector<TokenProbability> distribution;
  distribution.reserve(head_.size());
  for (const Candidate& candidate : head_) {
    const double weight = Weight(candidate.logit, max, params.InverseTemperature());
    distribution.push_back({TokenId(candidate.id), weight / mass});
  }
  return distribution;
}

absl::StatusOr<Draw> Sampler::Sample(std::span<const float> logits, const Params& params,
                                     const History& history, uint64_t position, std::optional<int> logprobs,
                                     std::optional<TokenId> forced, std::span<const uint32_t> mask) {
  const std::span<const float> adjusted = Adjust(logits, params, history, mask);
  const float max = Max(adjusted);
  if (std::isinf(max)) return NothingLeft(std::ssize(logits));

  Draw draw;
  if (forced.has_value()) {
    draw.token = *forced;
  } else if (params.temperature == 0) {
    draw.token = LowestIdOf(adjusted, max);
  } else if (params.top_k > 0) {
    SelectHead(adjusted, params.top_k);
    const double target = UniformAt(params.seed, position) * CutHead(max, params);
    double passed = 0;
    for (const Candidate& candidate : head_) {
      draw.token = TokenId(candidate.id);  // should rounding leave the target unreached, it is the last one
      passed += Weight(candidate.logit, max, params.InverseTemperature());
      if (passed > target) break;
    }
  } else {
    ranking_.Rank(adjusted, max, params.InverseTemperature());
    ranking_.Keep(params.CutOf(ranking_.total()));
    draw.token = TokenId(ranking_.At(UniformAt(params.seed, position)));
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
