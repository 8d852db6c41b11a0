// How far a model with other weights, or another precision of KV, is from itself as stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/engine/engine.h"

namespace baton {

struct Quality {
  int64_t tokens = 0;  // every one after the first of its text
  // Kullback-Leibler divergence KL(stored || other) of a token, in nats.
  double divergence = 0, worst = 0;  // mean, largest
  double perplexity_stored = 0, perplexity = 0;
  double same_choice = 0;  // part of the tokens for which both have the same likeliest one
};

// The conversations of a folder's own evaluation, eval/recall.jsonl: every tenth, as tokens.
std::vector<std::vector<TokenId>> Conversations(const std::string& folder);

// Both engines have the same vocabulary, and KV memory for the longest text.
Quality Compare(engine::Engine& stored, engine::Engine& other,
                const std::vector<std::vector<TokenId>>& texts);

// One line.
std::string Describe(const Quality& quality);

}  // namespace baton
