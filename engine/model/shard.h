// Shard: which part of a model a rank of a tensor-parallel group holds, after Megatron-LM (arXiv 1909.08053):
// Q, K, V, gate and up are split by output features (whole heads), the attention's output and down by input
// features, so that each half of a layer needs one sum over the ranks; embedding and head are split by
// vocabulary. Plain data, any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "text/config/config.h"

namespace baton::model {

struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Shard {
  int rank = 0;
  int ranks = 1;

  // This rank's part of `total` things; the parts cover all and differ by one at most.
  Range Of(int64_t total) const {
    const int64_t begin = total * rank / ranks;
    return {begin, total * (rank + 1) / ranks - begin};
  }
  bool first() const { return rank == 0; }
};

// INVALID_ARGUMENT, with the numbers that would do, unless `ranks` divides what has to be split evenly.
absl::Status CheckDivides(const ModelConfig& config, int ranks);

}  // namespace baton::model
