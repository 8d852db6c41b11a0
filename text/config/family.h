// Family: the row of a table for each architecture that Baton runs, with what it has beyond the plain Llama.
// Constants, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/config/json_fields.h"
#include "text/config/mixture.h"

namespace baton::model {

// It also has what the family assumes where config.json is silent, as transformers does.
struct Family {
  std::string_view architecture;
  std::string_view model_type;           // transformers' name for the configuration
  bool optional_attention_bias = false;  // reads attention_bias: Q, K, V and O
  bool attention_bias = false;           // where that is missing
  bool optional_mlp_bias = false;        // reads mlp_bias
  bool qkv_bias = false;                 // always has biases on Q, K and V
  bool qk_norm = false;
  bool always_windowed = false;   // sliding_window holds for all layers (Mistral)
  int64_t window = 0;             // where sliding_window is missing then; 0: none
  bool optional_windows = false;  // use_sliding_window, max_window_layers, layer_types (Qwen)
  bool alternating = false;       // layer_types; without them every other layer, from the first, has `window`
  int head_dim = 0;               // where head_dim is missing; 0: hidden / heads
  bool optional_qk_norm = false;  // use_qk_norm
  bool wide_qk_norm = false;
  bool optional_qkv_bias = false;     // qkv_bias, by default true (Qwen2-MoE)
  bool output_bias = true;            // attention_bias means that of O, too
  bool optional_output_bias = false;  // attention_out_bias says it in its place (Seed-OSS)
  bool clips_qkv = false;             // reads clip_qkv
  double rotary_part = 1;             // where partial_rotary_factor is missing
  bool optional_rotary_part = false;
  double rope_theta = 10000;
  bool needs_rope_scaling = false;
  bool sinks = false;
  int kv_heads = 0;              // where num_key_value_heads is missing; 0: as many as heads
  bool tied_embeddings = false;  // where tie_word_embeddings is missing
  bool unturned_layers = false;  // no_rope_layers, no_rope_layer_interval, and windows of these layers
  bool multipliers = false;      // Granite's four, in ModelConfig
  bool squared_relu = false;     // no gate
  bool query_scaling = false;    // reads llama_4_scaling_beta
  bool late_qk_norm = false;     // and reads `alpha` of dynamic rope, which makes it a static one (HunYuan)
  bool paired_rows = false;
  bool optional_bias = false;  // use_bias: of every projection (ERNIE)
  bool post_norms = false;
  // layer_types; without them every fourth layer, from the fourth on, attends to all, and the others have
  // `window`. Both kinds have ropes of their own (OLMo 3).
  bool mostly_windowed = false;
  bool fused_rows = false;
  // The family is a model in text_config, of model_type mistral or ministral3; there is a part for images,
  // too.
  bool text_config = false;
  // Options that have one value, where they are given: a JSON object.
  std::string_view fixed = {};
  // A mixture of experts, or null.
  const MixtureFamily* mixture = nullptr;
};

// All of them.
std::span<const Family> Families();

// The family that a config.json, named `file` in messages, is of. INVALID_ARGUMENT names those that are
// known.
absl::StatusOr<Family> FamilyOf(const Json& json, std::string_view file);

}  // namespace baton::model
