// Sampler: logits to a token. The draw is a function of (logits, history, parameters, seed, position) alone,
// so a sequence that is replayed elsewhere goes on with the same tokens. Plain data; one thread at a time.
//
// Order: repetition penalty (Keskar et al., "CTRL", 2019, as in transformers), presence and frequency
// penalties (OpenAI's API), logit bias; temperature; top-k; top-p; min-p; draw by inverse transform over the
// kept tokens in descending order of probability (ties by ascending id).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "engine/sampling/ranking.h"
#include "engine/sampling/trace.h"

namespace baton::sampling {

struct Params {
  float temperature = 1;  // 0: greedy, the lowest id of the likeliest tokens
  int top_k = 0;          // exactly so many tokens, of equal ones those with lower ids; 0: all
  float top_p = 1;        // the smallest head of the distribution with at least this mass (after top-k)
  float min_p = 0;        // tokens with at least this share of the likeliest one's probability
  uint64_t seed = 0;
  float repetition_penalty =
      1;  // of tokens in prompt and output: logit / penalty if positive, else logit x penalty
  float presence_penalty = 0;   // subtracted once from tokens in the output
  float frequency_penalty = 0;  // subtracted from tokens in the output, as often as they are there
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to the logits; each token at most once

  // INVALID_ARGUMENT names the field, the value and the range. Non-finite values are refused.
  absl::Status Validate(int64_t vocabulary) const;
  // True if the tokens of a sequence change its logits.
  bool Penalises() const;
  // Penalties or a bias do.
  bool ChangesLogits() const;
  // The temperature is above 0.
  double InverseTemperature() const { return 1.0 / static_cast<double>(temperature); }
  // The end of the head that top-p and min-p keep, where `total` is the mass before them.
  Cut CutOf(double total) const;
};

struct TokenLogprob {
  TokenId token;
  float logprob = 0;  // natural logarithm
};

struct Draw {
  TokenId token;
  // The chosen token's, after penalties and bias, before temperature; only when asked for.
  std::optional<float> logprob;
  std::vector<TokenLogprob> top;  // the likeliest, descending; impossible tokens are left out
  std::optional<Trace> trace;     // for a client that asked for it: Sample makes none
};

struct TokenProbability {
  TokenId token;
  double probability = 0;
};

// Tokens of a sequence, for penalties. Rebuilt from tokens on a replay.
class History {
 public:
  void AddPrompt(std::span<const TokenId> tokens);
  void AddOutput(TokenId token);

 private:
  friend class Sampler;
  absl::flat_hash_map<TokenId, int> output_counts_;
  absl::flat_hash_set<TokenId> seen_;
};

// INTERNAL: what Sample says of a row of logits of which none is a number above -inf.
absl::Status NothingLeft(int64_t vocabulary);

class Sampler {
 public:
  // Draws the token that takes `position` (index in prompt + output). `logits` has vocabulary values and is
  // not changed; `params` are valid for that vocabulary. logprobs: how many top alternatives to report;
  // absent reports none and no logprob. A NaN logit counts as -inf and an infinite one as the largest number;
  // INTERNAL when no token is left. mask: bit i % 32 of word i / 32 says that token i may be drawn, whatever
  // penalties and bias say, and what lies beyond its words may not; empty: all may. `forced` is taken in
  // place of a draw, and reported like one.
  absl::StatusOr<Draw> Sample(std::span<const float> logits, const Params& params, const History& history,
                              uint64_t position, std::optional<int> logprobs,
                              std::optional<TokenId> forced = std::nullopt,
                              std::span<const uint32_t> mask = {});

  // How Sample chose `token` with these arguments. `forced`: it was taken in place of a draw. Several passes
  // over the vocabulary: it is for those who look. Sample has found something to draw.
  Trace Explain(std::span<const float> logits, const Params& params, const History& history,
                uint64_t position, TokenId token, bool forced, std::span<const uint32_t> mask = {});

  // The distribution that Sample draws from: the kept tokens in the order of the inverse transform.
  absl::StatusOr<std::vector<TokenProbability>> Distribution(std::span<const float> logits,
                                                             const Params& params, const History& history);

 private:
  // Logits after penalties, bias and mask: `logits` themselves where nothing changes them, else adjusted_.
  std::span<const float> Adjust(std::span<const float> logits, const Params& params, const History& history,
                                std::span<const uint32_t> mask = {});
  // Puts the `count` largest logits above -inf into head_, descending, ties by ascending id. O(vocabulary) as
  // long as `count` is a small part of it.
  void SelectHead(std::span<const float> logits, int64_t count);
  // With top-k: cuts head_ down to what top-p and min-p keep, and returns its mass.
  double CutHead(float max, const Params& params);

  std::vector<float> adjusted_;
  std::vector<Candidate> head_;  // with top-k: the kept tokens; and for logprobs
  Ranking ranking_;              // without
};

}  // namespace baton::sampling
