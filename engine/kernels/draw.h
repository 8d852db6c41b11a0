// StepDraws: how a DeviceSampler draws tokens from rows of logits. RowDraw and TokenBias are plain data,
// which device code reads as it is.
//
// The order is that of sampling::Sampler (sampler.h): penalties and bias, mask, temperature, top-k, top-p,
// min-p, inverse transform over the kept tokens in descending order of logits, ties by ascending id. Devices
// compute no log probabilities: rows that ask for them are sampled on the host.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"

namespace baton::kernels {

struct RowDraw {
  double uniform = 0;     // where in the kept mass the token lies, in [0, 1)
  int32_t row = 0;        // of the logits
  float temperature = 1;  // 0: the lowest id of the likeliest tokens
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  // The penalty slot, in which the backend counts the tokens that the sequence has seen, the drawn one
  // included. -1: none, and no penalties.
  int32_t slot = -1;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t first_bias = 0;  // of StepDraws::biases
  int32_t bias_count = 0;
  int32_t first_mask = 0;  // of StepDraws::masks
  // Words of the row's mask: bit i % 32 of word i / 32 says that token i may be drawn, and what lies beyond
  // them may not. 0: all may.
  int32_t mask_words = 0;
};

struct TokenBias {
  int32_t token = 0;  // of one row, each at most once
  float bias = 0;
};

// A penalty slot that is cleared for another sequence, and the tokens that it counts at first.
struct SeenTokens {
  int32_t slot = 0;
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;
};

// The draws of one step: the rows of logits whose token is wanted rather than the logits, if the backend has
// a sampler, ascending; and the tables that they refer to.
struct StepDraws {
  std::span<const RowDraw> rows = {};
  std::span<const TokenBias> biases = {};
  std::span<const SeenTokens> seen = {};  // counted before anything is drawn
  std::span<const uint32_t> masks = {};
};

}  // namespace baton::kernels
