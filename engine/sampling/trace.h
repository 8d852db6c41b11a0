// Traces: how a token was chosen, and how many tokens each step before that left. Made beside a draw, for a
// client that asks for it (Sampler::Explain). Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"

namespace baton::sampling {

// How many of the likeliest tokens a trace lists, at most.
inline constexpr int kTracedTokens = 10;

struct TokenTrace {
  TokenId token;
  float logit = 0;         // the model's
  float adjusted = 0;      // after penalties and bias
  double probability = 0;  // by the adjusted logits of the whole vocabulary, before mask and temperature
  double tempered = 0;     // after mask and temperature, before top-k
  double drawn = 0;        // in the distribution that is drawn from; 0: a filter dropped it
};

struct Trace {
  enum class How { kDrawn, kGreedy, kForced };
  How how = How::kDrawn;
  TokenId token;
  // Tokens that are left, in the order of the steps. Of a forced token, what they would have left.
  int64_t vocabulary = 0;  // whose logit is a number
  int64_t after_mask = 0;
  int64_t after_temperature = 0;  // whose weight is not 0; with temperature 0 the likeliest one alone
  int64_t after_top_k = 0;
  int64_t after_top_p = 0;
  int64_t after_min_p = 0;
  std::optional<double> uniform;  // UniformAt(seed, position); absent: nothing was drawn
  // In the order of ranks, after the mask. The chosen one stands behind them if it is none of them.
  std::vector<TokenTrace> likeliest;
};

}  // namespace baton::sampling
