#include "engine/model/expert_block.h"

#include "common/base/check.h"
#include "engine/model/stored_experts.h"

namespace baton::model {

using kernels::Matrix;

kernels::Routing RoutingOf(const ExpertConfig& config) {
  return {.experts = config.experts,
          .chosen = config.chosen,
          .score = config.sigmoid ? kernels::Routing::Score::kSigmoid : kernels::Routing::Score::kSoftmax,
          .late_softmax = config.late_softmax,
          .normalize = config.normalize,
          .scale = static_cast<float>(config.scale),
          .groups = config.groups,
          .chosen_groups = config.chosen_groups,
          .shared = config.shared_width > 0,
          .shared_gated = config.shared_gated};
}

ExpertBlock::ExpertBlock(const ModelConfig& config, int layer, const ExpertWeights& weights, const Rank& rank,
                         ExpertStore* store)
    : layer_(layer),
      routing_(RoutingOf(config.experts)),
      weights_(weights),
      rank_(rank),
      exact_sums_(ExactSums(weights)),
      limit_(static_cast<float>(config.experts.limit)),
      slope_(static_cast<float>(config.experts.slope)) {
  if (store != nullptr) {
    residency_ = std::make_unique<StoredExperts>(layer, config.experts.experts, weights.experts, *store);
  }
  for (const ExpertMatrices& expert : weights.experts) {
    experts_.push_back({.gate_up = expert.gate_up.get(),
                        .down = expert.down.get(),
                        .gate_up_bias = expert.gate_up_bias.view(),
                        .down_bias = expert.down_bias.view()});
  }
}

ExpertBlock::Scratch ExpertBlock::Take(Arena& arena, int64_t rows) const {
  static_assert(sizeof(kernels::ExpertChoice) == 2 * sizeof(float));
  return {.logits = arena.Take(rows, routing_.logits()), .choices = arena.Take(rows, 2 * routing_.per_row())};
}

void ExpertBlock::Forward(Matrix normed, const Scratch& scratch, Matrix out, ExpertObserver* observer) const {
  BATON_CHECK(observer == nullptr || rank_.group == nullptr);
  const kernels::Choices choices = {.data = static_cast<kernels::ExpertChoice*>(scratch.choices.data),
                                    .rows = normed.rows,
                                    .per_row = routing_.per_row()};
  std::vector<double> norms(observer == nullptr ? 0 : static_cast<size_t>(choices.rows * choices.per_row));
  rank_.kernels.MatMul(normed, *weights_.router, weights_.router_bias.view(),
                       scratch.logits.Rows(0, normed.rows));
  rank_.kernels.Route(scratch.logits.Rows(0, normed.rows), routing_, weights_.choice_bias.view(), choices);
  rank_.kernels.Experts(normed, choices,
                        {.experts = experts_,
                         .exact_sums = exact_sums_,
                         .limit = limit_,
                         .slope = slope_,
                         .residency = residency_.get()},
                        out, rank_.group, norms);
  if (observer != nullptr) observer->Chose(layer_, choices, norms);
}

}  // namespace baton::model
