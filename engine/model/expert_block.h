// ExpertBlock: the feed-forward block of a layer that is a mixture of experts. It issues kernels and keeps
// nothing but where its weights are. The decoder's thread only.
//
//   choices = route(h Wrouter + b)            of each row alone, in float32
//   out     = sum of weight_e * expert_e(h), e = the row's choices in ascending order, a shared one last
//
// A row's bits depend on that row alone, as for every other block.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/kernels/experts.h"
#include "engine/kernels/kernels.h"
#include "engine/model/arena.h"
#include "engine/model/expert_store.h"
#include "engine/model/rank.h"
#include "engine/model/weights.h"
#include "text/config/config.h"

namespace baton::model {

// Sees which experts rows choose, and what these give: for pruning. Called on the decoder's thread.
class ExpertObserver {
 public:
  virtual ~ExpertObserver() = default;
  // norms: the L2 norm of what each chosen expert gave, before its weight, [choices.rows][choices.per_row].
  virtual void Chose(int layer, const kernels::Choices& choices, std::span<const double> norms) = 0;
};

class ExpertBlock {
 public:
  // Values between its operations. All layers share it.
  struct Scratch {
    kernels::Matrix logits;   // [rows, experts (+ 1)]
    kernels::Matrix choices;  // [rows, 2 per_row]: memory of kernels::Choices
  };

  // All of these outlive the block. store: where its routed experts are; null: in memory.
  ExpertBlock(const ModelConfig& config, int layer, const ExpertWeights& weights, const Rank& rank,
              ExpertStore* store = nullptr);

  Scratch Take(Arena& arena, int64_t rows) const;
  // h is `normed` [rows, hidden]; `out` [rows, hidden] is summed over the ranks. observer: or null; on one
  // rank only.
  void Forward(kernels::Matrix normed, const Scratch& scratch, kernels::Matrix out,
               ExpertObserver* observer) const;

 private:
  const int layer_;
  const kernels::Routing routing_;
  const ExpertWeights& weights_;
  const Rank& rank_;
  std::vector<kernels::Expert> experts_;
  std::unique_ptr<kernels::ExpertResidency> residency_;  // null: all are in memory
  bool exact_sums_;
  float limit_, slope_;
};

// A config's routing in the kernels' form.
kernels::Routing RoutingOf(const ExpertConfig& config);

}  // namespace baton::model
