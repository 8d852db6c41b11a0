// RowDraw: how a token is drawn from one row of logits. Plain data, which device code reads as it is.
#pragma once

#include <cstdint>

namespace baton::kernels {

// In sampling::Sampler's order (sampler.h): temperature, top-k, top-p, min-p, inverse transform over the kept
// tokens in descending order of logits, ties by ascending id. Penalties, bias and log probabilities are not
// for devices: rows that want those are drawn from on the host.
struct RowDraw {
  double uniform = 0;     // where in the kept mass the token lies, in [0, 1)
  int32_t row = 0;        // of the logits
  float temperature = 1;  // 0: the lowest id of the likeliest tokens
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
};

}  // namespace baton::kernels
