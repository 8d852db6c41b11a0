// How far a model with other weights is from itself as stored, on the conversations of its own evaluation.
#pragma once

#include <cstdint>
#include <string>

#include "common/engine/engine.h"

namespace baton {

struct Quality {
  int64_t tokens = 0;  // every one after the first of its conversation
  // Kullback-Leibler divergence KL(stored || other) of a token, in nats.
  double divergence = 0, worst = 0;  // mean, largest
  double perplexity_stored = 0, perplexity = 0;
  double same_choice = 0;  // part of the tokens for which both have the same likeliest one
};

// Both engines have the tokens of `folder`, whose eval/recall.jsonl is read: every tenth conversation.
Quality Compare(engine::Engine& stored, engine::Engine& other, const std::string& folder);

// One line.
std::string Describe(const Quality& quality);

}  // namespace baton
