// ModelConfig: one decoder definition with options for what families differ in, read from a Hugging Face
// config.json. An architecture, option or rope type that is not known is refused by name, never guessed.
// Plain data, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"

namespace baton::model {

// Rope scaling as in Hugging Face `rope_scaling` or, since transformers 5, `rope_parameters`
// (modeling_rope_utils). What each type computes is in rope.h.
struct RopeScaling {
  enum class Type { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongRope };
  Type type = Type::kNone;
  double factor = 1;
  // original_max_position_embeddings; by default, and of kDynamic always, max_position_embeddings.
  int64_t original_context = 0;
  // llama3
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // yarn (arXiv 2309.00071)
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 0;  // 0: 0.1 ln(factor) + 1, or from mscale / mscale_all_dim
  double mscale = 0;
  double mscale_all_dim = 0;
  bool truncate = true;
  // longrope (arXiv 2402.13753), [rotary_dim / 2]: long_factor if the context goes beyond original_context,
  // else short_factor.
  std::vector<double> factors;
};

// The layers that are mixtures of experts: all the same, but for their weights. What the fields of routing
// compute is in engine/kernels/experts.h.
struct ExpertConfig {
  int experts = 0;  // 0: the model has none
  int chosen = 0;
  int64_t width = 0;  // of each expert
  bool sigmoid = false;
  bool choice_bias = false;  // e_score_correction_bias
  bool normalize = false;
  double scale = 1;
  int groups = 1, chosen_groups = 1;
  int64_t shared_width = 0;  // 0: no shared expert
  bool shared_gated = false;
  // gpt-oss: softmax over the chosen alone, biases of the router and of each expert, a clamped activation
  // (kernels::ExpertLayer), and the experts of a layer in tensors of all of them (fused_experts.h).
  bool late_softmax = false;
  bool biased = false;
  double limit = 0, slope = 1;  // 0: no clamp
  bool fused = false;
  // Names below "model.layers.N.": "mlp" or "block_sparse_moe", and whether gate, up and down are w1, w3, w2.
  std::string block;
  bool numbered_names = false;
  std::string shared_name;  // "shared_expert", "shared_experts"
  std::string router_name;  // "gate", "router"
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM": family.cc has all of them
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;   // of a head, the first values that turn by their position: all, but for Glm4Moe
  int64_t context = 0;  // max_position_embeddings, prompt and answer together
  float rms_eps = 0;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of o_proj (Llama attention_bias)
  bool mlp_bias = false;
  bool qk_norm = false;
  bool wide_qk_norm = false;  // over all heads together (OLMoE), not each alone
  bool sinks = false;         // a score of each head that joins its softmax (gpt-oss)
  bool squared_relu = false;  // of the dense blocks, in the place of the gate (Arcee)
  // Not 0: a query at position p is multiplied by 1 + query_beta ln(1 + floor(p / original_context)), after
  // rope (Ministral 3).
  double query_beta = 0;
  bool late_qk_norm = false;  // after rope (HunYuan)
  bool paired_rows = false;   // of Q and K as stored: those that turn together are neighbours (ERNIE)
  bool post_norms = false;    // norms are of what a block gives, not of what it reads (OLMo 2)
  double window_theta = 0;    // not 0: rope_theta of layers with a window, without scaling (OLMo 3)
  bool fused_rows = false;    // stored Q, K and V are one matrix, gate and up another (Phi-3)
  // The folder has a part that reads images, of no use here (Mistral 3).
  bool images_left_out = false;
  // Granite's factors: on embeddings, on scores of attention (0: 1 / sqrt(head_dim)), and on what a block
  // adds to the residual stream; and what logits are divided by.
  double embedding_multiplier = 1, attention_multiplier = 0, residual_multiplier = 1, logits_divisor = 1;
  // [layers], or empty: queries and keys keep still, whatever their position (SmolLM3's NoPE).
  std::vector<bool> unturned_layers;
  ExpertConfig experts;
  std::vector<bool> expert_layers;  // [layers], or empty: has experts, in the place of `intermediate`
  int extra_layers = 0;             // stored behind the layers, of no use here: multi-token prediction
  // Per layer: attend to the last `window` positions, 0 for all.
  std::vector<int64_t> windows;
  // Tokens that end an answer: of a folder or a GGUF file the union of all that it says (end_tokens.h). Not
  // part of Canonical(): router and workers compare EndsDigest.
  std::vector<TokenId> eos;
  std::string weights_dtype;  // torch_dtype / dtype, for people
  // Options that the family does not know (UnusedOptions), for people.
  std::vector<std::string> unused;

  // Reads config.json from a model folder and the files that name tokens to end at, or the metadata of a GGUF
  // file. Errors name the file and the field.
  static absl::StatusOr<ModelConfig> Load(const std::string& folder);
  static absl::StatusOr<ModelConfig> FromJson(const std::string& json);

  // Canonical text: equal texts mean equal computations. Part of the fingerprint.
  std::string Canonical() const;
  // SHA-256 (32 bytes) over Canonical().
  std::string Digest() const;
  // Weights and biases, all of them; tied embeddings count once.
  int64_t parameters() const;
  // Parameters that a token uses: of the experts those that it chooses.
  int64_t active_parameters() const;
  bool has_experts(int layer) const {
    return !expert_layers.empty() && expert_layers[static_cast<size_t>(layer)];
  }
  bool unturned(int layer) const {
    return !unturned_layers.empty() && unturned_layers[static_cast<size_t>(layer)];
  }
  // For people: "LlamaForCausalLM, 6 layers, hidden 192, 6 heads, 2 KV heads, vocabulary 4096, context 2048".
  std::string Describe() const;
};

// Defaults for generation, from generation_config.json (optional in a folder) or the metadata of a GGUF file.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k, max_new_tokens;
  bool do_sample = true;  // false: temperature 0 unless the request says otherwise
  // Why a field of the file is no default: one sentence each, with file and field. A value that can't be used
  // costs the model nothing else.
  std::vector<std::string> left_out;

  // `vocabulary`: of the model, for eos_token_id. INVALID_ARGUMENT: the file is not a JSON object.
  static absl::StatusOr<GenerationDefaults> Load(const std::string& folder, int64_t vocabulary);
};

}  // namespace baton::model
