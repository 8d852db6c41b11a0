// FeedForward: the dense feed-forward block of one layer (SwiGLU, arXiv 2002.05202). It issues kernels and
// keeps nothing but where its weights are. The decoder's thread only.
//
//   out = (silu(h Wgate + b) * (h Wup + b)) Wdown + b, or without a gate
//   out = relu(h Wup + b)^2 Wdown + b
#pragma once

#include "engine/kernels/kernels.h"
#include "engine/model/arena.h"
#include "engine/model/rank.h"
#include "engine/model/weights.h"

namespace baton::model {

class FeedForward {
 public:
  // Values between its products. All layers share it.
  struct Scratch {
    kernels::Matrix gate_up;    // [rows, 2 intermediate], of this rank's part; without a gate, half of it
    kernels::Matrix activated;  // [rows, intermediate]
  };

  // Both outlive the block.
  FeedForward(const FeedForwardWeights& weights, const Rank& rank) : weights_(weights), rank_(rank) {}

  Scratch Take(Arena& arena, int64_t rows) const;
  // h is `normed` [rows, hidden]; `out` [rows, hidden] is summed over the ranks.
  void Forward(kernels::Matrix normed, const Scratch& scratch, kernels::Matrix out) const;

 private:
  const FeedForwardWeights& weights_;
  const Rank& rank_;
};

}  // namespace baton::model
