// How families write down their mixtures of experts in config.json, and the reading of it. Pure functions,
// any thread.
#pragma once

#include <string_view>

#include "text/config/config.h"
#include "text/config/json_fields.h"

namespace baton::model {

// How a family's mixtures of experts are written down.
struct MixtureFamily {
  std::string_view block, shared_name;
  bool numbered_names = false;
  std::string_view experts;  // fields of config.json; num_local_experts is known as well
  std::string_view width;
  bool all_layers = false;      // else mlp_only_layers and decoder_sparse_step say which
  bool dense_first = false;     // first_k_dense_replace
  bool normalize = false;       // always, else norm_topk_prob
  bool sigmoid_groups = false;  // DeepSeek-V3's routing: sigmoid, choice bias, groups, scale
  bool shared_gated = false;    // shared_expert_intermediate_size; else n_shared_experts of the same width
  bool gpt_oss = false;         // all that ExpertConfig says of it
};

inline constexpr MixtureFamily kQwen3Moe = {
    .block = "mlp", .experts = "num_experts", .width = "moe_intermediate_size"};
inline constexpr MixtureFamily kQwen2Moe = {.block = "mlp",
                                            .shared_name = "shared_expert",
                                            .experts = "num_experts",
                                            .width = "moe_intermediate_size",
                                            .shared_gated = true};
inline constexpr MixtureFamily kOlmoe = {
    .block = "mlp", .experts = "num_experts", .width = "intermediate_size", .all_layers = true};
inline constexpr MixtureFamily kMixtral = {.block = "block_sparse_moe",
                                           .numbered_names = true,
                                           .experts = "num_local_experts",
                                           .width = "intermediate_size",
                                           .all_layers = true,
                                           .normalize = true};
inline constexpr MixtureFamily kGlm4Moe = {.block = "mlp",
                                           .shared_name = "shared_experts",
                                           .experts = "n_routed_experts",
                                           .width = "moe_intermediate_size",
                                           .dense_first = true,
                                           .sigmoid_groups = true};

inline constexpr MixtureFamily kGptOss = {.block = "mlp",
                                          .experts = "num_local_experts",
                                          .width = "intermediate_size",
                                          .all_layers = true,
                                          .gpt_oss = true};

// Reads the experts of `config`, whose layers are known. What is wrong is refused through `fields`.
void ReadExperts(JsonFields& fields, const MixtureFamily& mixture, ModelConfig& config);

}  // namespace baton::model
