// Rank: one rank of a tensor-parallel group, or the only one: the kernels that it issues operations to, its
// part of the model, and the sums over all ranks. Its engine thread only; kernels and group outlive it.
#pragma once

#include "common/kernels/collective.h"
#include "common/kernels/kernels.h"
#include "common/model/shard.h"

namespace baton::model {

struct Rank {
  kernels::Kernels& kernels;
  kernels::Collective* group = nullptr;  // null: this rank has the whole model
  Shard shard;

  Rank(kernels::Kernels& kernels, kernels::Collective* group)
      : kernels(kernels),
        group(group),
        shard(group == nullptr ? Shard{} : Shard{.rank = group->rank(), .ranks = group->ranks()}) {}

  // matrix = the sum of all ranks' matrices.
  void Sum(kernels::Matrix matrix) const {
    if (group != nullptr) group->AllReduce(matrix);
  }
  void Barrier() const {
    if (group != nullptr) group->Barrier();
  }
};

}  // namespace baton::model
