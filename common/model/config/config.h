// ModelConfig: one decoder definition with options for what families differ in, read from a Hugging Face
// config.json. An architecture, option or rope type that is not known is refused by name, never guessed.
// Plain data, any thread.
#pragma once

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
  enum class Type { kNone, kLinear, kDynamic, kYarn, kLlama3 };
  Type type = Type::kNone;
  double factor = 1;
  int64_t original_context = 0;  // original_max_position_embeddings; by default max_position_embeddings
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
};

struct ModelConfig {
  std::string
      architecture;  // "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t context = 0;  // max_position_embeddings, prompt and answer together
  float rms_eps = 0;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of o_proj (Llama attention_bias)
  bool mlp_bias = false;
  bool qk_norm = false;
  // Per layer: attend to the last `window` positions, 0 for all.
  std::vector<int64_t> windows;
  std::vector<TokenId> eos;
  std::string weights_dtype;  // torch_dtype / dtype, for people

  // Reads config.json from a model folder, or the metadata of a GGUF file. Errors name the file and the
  // field.
  static absl::StatusOr<ModelConfig> Load(const std::string& folder);
  static absl::StatusOr<ModelConfig> FromJson(const std::string& json);

  // Canonical text: equal texts mean equal computations. Part of the fingerprint.
  std::string Canonical() const;
  // SHA-256 (32 bytes) over Canonical().
  std::string Digest() const;
  // Weights and biases, all of them; tied embeddings count once.
  int64_t parameters() const;
  // For people: "LlamaForCausalLM, 6 layers, hidden 192, 6 heads, 2 KV heads, vocabulary 4096, context 2048".
  std::string Describe() const;
  // 2 x layers x kv_heads x head_dim x bytes.
  int64_t KvBytesPerToken(int bytes_per_value) const {
    return int64_t{2} * layers * kv_heads * head_dim * bytes_per_value;
  }
};

// Defaults for generation, from generation_config.json (optional in a folder) or the metadata of a GGUF file.
// `eos` falls back to the config's.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k, max_new_tokens;
  bool do_sample = true;  // false: temperature 0 unless the request says otherwise
  std::vector<TokenId> eos;

  static absl::StatusOr<GenerationDefaults> Load(const std::string& folder, const ModelConfig& config);
};

}  // namespace baton::model
