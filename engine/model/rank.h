// Rank: one rank of a tensor-parallel group, or the only one: the kernels that it issues operations to, its
// part of the model, and the sums over all ranks. Its engine thread only; kernels and group outlive it.
#pragma once

#include <span>

#include "engine/kernels/collective.h"
#include "engine/kernels/kernels.h"
#include "engine/model/shard.h"

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
  // out = x w^T + bias; if there are ranks, of the columns of all of them. Every rank has the bias.
  void MatMulSum(kernels::Matrix x, const kernels::PackedMatrix& w, std::span<const float> bias,
                 kernels::Matrix out) const {
    if (group == nullptr) return kernels.MatMul(x, w, bias, out);
    if (w.exact_sums()) return kernels.MatMulSum(x, w, bias, out, *group);
    kernels.MatMul(x, w, shard.first() ? bias : std::span<const float>(), out);
    group->AllReduce(out);
  }
  void Barrier() const {
    if (group != nullptr) group->Barrier();
  }
};

}  // namespace baton::model
