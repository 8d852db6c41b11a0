#include "text/config/mixture.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "text/config/bounds.h"

namespace baton::model {
namespace {

constexpr int64_t kMaxExperts = 1 << 11;
constexpr int64_t kMaxExpertWidth = 1 << 18;

// Which layers have experts, as each family says it.
void ReadExpertLayers(JsonFields& fields, const MixtureFamily& mixture, ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.layers);
  config.expert_layers.assign(layers, true);
  if (mixture.all_layers) return;
  if (mixture.dense_first) {
    const int64_t dense = fields.Integer("first_k_dense_replace", 0, kMaxLayers, 1);
    for (size_t l = 0; l < layers; ++l) config.expert_layers[l] = static_cast<int64_t>(l) >= dense;
    return;
  }
  const int64_t step = fields.Integer("decoder_sparse_step", 1, kMaxLayers, 1);
  for (size_t l = 0; l < layers; ++l) config.expert_layers[l] = (static_cast<int64_t>(l) + 1) % step == 0;
  for (const int64_t l : fields.Integers("mlp_only_layers", 0, config.layers - 1)) {
    config.expert_layers[static_cast<size_t>(l)] = false;
  }
}

}  // namespace

void ReadExperts(JsonFields& fields, const MixtureFamily& mixture, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  // transformers has the number under either name.
  const std::string_view count = fields.Has(mixture.experts) ? mixture.experts : "num_local_experts";
  experts.experts = static_cast<int>(fields.Integer(count, 1, kMaxExperts));
  experts.chosen = static_cast<int>(fields.Integer("num_experts_per_tok", 1, kMaxExperts));
  experts.width = fields.Integer(mixture.width, 1, kMaxExpertWidth);
  experts.block = mixture.block;
  experts.numbered_names = mixture.numbered_names;
  experts.shared_name = mixture.shared_name;
  experts.router_name = mixture.gpt_oss ? "router" : "gate";
  if (mixture.gpt_oss) {
    experts.late_softmax = experts.biased = experts.fused = true;
    experts.limit = fields.Number("swiglu_limit", {.low = 0, .low_open = true}, 7);
    experts.slope = fields.Number("swiglu_alpha", {.low = 0, .low_open = true}, 1.702);
  } else {
    experts.normalize = mixture.normalize || fields.Flag("norm_topk_prob", mixture.sigmoid_groups);
  }
  if (mixture.shared_gated) {
    experts.shared_width = fields.Integer("shared_expert_intermediate_size", 1, kMaxWidth);
    experts.shared_gated = true;
  }
  if (mixture.sigmoid_groups) {
    experts.sigmoid = experts.choice_bias = true;
    experts.scale = fields.Number("routed_scaling_factor", {.low = 0, .low_open = true}, 1);
    experts.groups = static_cast<int>(fields.Integer("n_group", 1, 256, 1));
    experts.chosen_groups = static_cast<int>(fields.Integer("topk_group", 1, 256, 1));
    experts.shared_width = fields.Integer("n_shared_experts", 0, 64, 1) * experts.width;
    config.extra_layers = static_cast<int>(fields.Integer("num_nextn_predict_layers", 0, kMaxLayers, 0));
  }
  if (experts.groups > 1 && (experts.experts % experts.groups != 0 || experts.experts < 2 * experts.groups)) {
    fields.Refuse("n_group", fmt::format("is {}, which does not split {} experts into groups of at least two",
                                         experts.groups, experts.experts));
  } else if (experts.chosen_groups > experts.groups) {
    fields.Refuse("topk_group",
                  fmt::format("is {}, more than n_group {}", experts.chosen_groups, experts.groups));
  } else if (experts.chosen > experts.experts / experts.groups * experts.chosen_groups) {
    fields.Refuse("num_experts_per_tok",
                  fmt::format("is {}, more than the {} experts that may be chosen", experts.chosen,
                              experts.experts / experts.groups * experts.chosen_groups));
  }
  ReadExpertLayers(fields, mixture, config);
}

}  // namespace baton::model
