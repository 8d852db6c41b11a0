// Head: from the residual stream's last norm to logits, and to where they are wanted. Each rank computes the
// columns of its part of the vocabulary. On the host all ranks write into one matrix, the caller's; on GPUs
// each rank has a matrix of all columns, which a sum over the ranks fills. The decoder's thread only.
#pragma once

#include <span>

#include "engine/kernels/kernels.h"
#include "engine/model/arena.h"
#include "engine/model/rank.h"

namespace baton::model {

class Head {
 public:
  // Both outlive the head. `weights`: this rank's rows of [vocabulary, hidden].
  Head(const kernels::PackedMatrix& weights, int64_t vocabulary, const Rank& rank)
      : weights_(weights), vocabulary_(vocabulary), rank_(rank), own_(rank.shard.Of(vocabulary)) {}

  // Where the logits of a step go, all columns: `wanted` rows of `logits` on the host, else `rows` rows of
  // the arena.
  kernels::Matrix Place(std::span<float> logits, int64_t wanted, int64_t rows, Arena& arena) const;
  // The columns that this rank computes.
  kernels::Matrix Own(kernels::Matrix logits) const { return logits.Columns(own_.begin, own_.count); }
  // This rank's columns of logits = h W^T, h being `normed` [rows, hidden].
  void Compute(kernels::Matrix normed, kernels::Matrix logits) const;
  // Afterwards every rank has all columns.
  void Gather(kernels::Matrix logits) const;
  // Copies this rank's columns of `rows` to the host, to the same rows of `to` [.., vocabulary], unless they
  // are there.
  void Deliver(kernels::Matrix logits, std::span<const int64_t> rows, std::span<float> to) const;

 private:
  bool on_host() const { return rank_.kernels.memory().host(); }

  const kernels::PackedMatrix& weights_;
  const int64_t vocabulary_;
  const Rank& rank_;
  const Range own_;
};

}  // namespace baton::model
