// Sampler: logits to a token. The draw is a function of (logits, history, parameters, seed, position) alone,
// so a sequence that is replayed elsewhere goes on with the same tokens. Plain data; one thread at a time.
//
// Order: repetition, presence and frequency penalties and logit bias; temperature; top-k; top-p; min-p; draw
// by inverse transform over the kept tokens in descending order of probability (ties by ascending id).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/ids.h"

namespace baton::sampling {

struct Params {
  float temperature = 1;  // 0: greedy
  int top_k = 0;          // 0: all
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;

  // INVALID_ARGUMENT names the field, the value and the range. Non-finite values are refused.
  absl::Status Validate(int64_t vocabulary) const;
};

struct TokenLogprob {
  TokenId token;
  float logprob = 0;
};

struct Draw {
  TokenId token;
  // Of the chosen token, after penalties and bias, before temperature; only when asked for.
  std::optional<float> logprob;
  std::vector<TokenLogprob> top;  // the likeliest, descending
};

// What a sequence has seen: for penalties. Rebuilt from tokens on a replay.
class History {
 public:
  void AddPrompt(std::span<const TokenId> tokens);
  void AddOutput(TokenId token);

 private:
  friend class Sampler;
  absl::flat_hash_map<TokenId, int> output_counts_;
  absl::flat_hash_map<TokenId, bool> seen_;
};

class Sampler {
 public:
  // Draws the token that takes `position` (index in prompt + output). `logits` has vocabulary values and is
  // not changed. logprobs: how many top alternatives to report; absent reports none and no logprob.
  Draw Sample(std::span<const float> logits, const Params& params, const History& history, uint64_t position,
              std::optional<int> logprobs);

 private:
  std::vector<float> adjusted_;
  std::vector<std::pair<float, int32_t>> kept_;
};

}  // namespace baton::sampling
