// How far the next tokens of a model are from another's: the Kullback-Leibler divergence of their
// distributions at temperature 1, in nats, and what follows from the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "engine/engine.h"

namespace baton::lab {

// KL(p || q) of the distributions that these logits give; infinity if they give none (NaN), or q gives 0
// where p does not.
double Divergence(std::span<const float> p, std::span<const float> q);

// Over positions of texts: of each token but the last, the distribution of what follows it.
struct Distance {
  int64_t positions = 0;
  // KL(reference || other): the mean, the least that 99% of the positions do not exceed, and the largest.
  double mean = 0, p99 = 0, largest = 0;
  // exp of the mean of -log p(token that follows), of the reference and of the other model.
  double perplexity_reference = 0, perplexity = 0;
  // Share of the positions at which both have the same likeliest token.
  double same_choice = 0;
};

// Runs both engines over the texts, in chunks of 256 rows, and compares these by `threads`. The engines have
// one vocabulary, which all tokens are of, and KV blocks for the longest text. There is a text, and each has
// at least two tokens.
Distance Compare(engine::Engine& reference, engine::Engine& other,
                 const std::vector<std::vector<TokenId>>& texts, int threads);

}  // namespace baton::lab
