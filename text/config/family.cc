#include "text/config/family.h"

#include <fmt/format.h>

#include <string>

namespace baton::model {
namespace {

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .optional_attention_bias = true,
     .optional_mlp_bias = true},
    {.architecture = "MistralForCausalLM", .model_type = "mistral", .always_windowed = true, .window = 4096},
    {.architecture = "Qwen2ForCausalLM", .model_type = "qwen2", .qkv_bias = true, .optional_windows = true},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .optional_attention_bias = true,
     .qk_norm = true,
     .optional_windows = true,
     .head_dim = 128},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .optional_attention_bias = true,
     .optional_mlp_bias = true,
     .rope_theta = 2e6,
     .kv_heads = 4,
     .tied_embeddings = true,
     .unturned_layers = true},
    {.architecture = "GraniteForCausalLM",
     .model_type = "granite",
     .optional_attention_bias = true,
     .optional_mlp_bias = true,
     .multipliers = true},
    {.architecture = "SeedOssForCausalLM",
     .model_type = "seed_oss",
     .optional_attention_bias = true,
     .attention_bias = true,
     .optional_mlp_bias = true,
     .head_dim = 128,
     .optional_output_bias = true,
     .kv_heads = 8},
    {.architecture = "ArceeForCausalLM",
     .model_type = "arcee",
     .optional_attention_bias = true,
     .optional_mlp_bias = true,
     .squared_relu = true},
    {.architecture = "Ministral3ForCausalLM",
     .model_type = "ministral3",
     .always_windowed = true,
     .head_dim = 128,
     .needs_rope_scaling = true,
     .kv_heads = 8,
     .query_scaling = true},
    {.architecture = "Mistral3ForConditionalGeneration", .model_type = "mistral3", .text_config = true},
    {.architecture = "HunYuanDenseV1ForCausalLM",
     .model_type = "hunyuan_v1_dense",
     .optional_attention_bias = true,
     .qk_norm = true,
     .late_qk_norm = true,
     .fixed = R"({"use_qk_norm": true, "use_cla": false, "mlp_bias": false, "norm_type": "rms",
                  "use_rotary_pos_emb": true})"},
    {.architecture = "Ernie4_5ForCausalLM",
     .model_type = "ernie4_5",
     .head_dim = 128,
     .rope_theta = 500000,
     .kv_heads = 2,
     .tied_embeddings = true,
     .paired_rows = true,
     .optional_bias = true},
    {.architecture = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .optional_attention_bias = true,
     .qk_norm = true,
     .wide_qk_norm = true,
     .post_norms = true},
    {.architecture = "Olmo3ForCausalLM",
     .model_type = "olmo3",
     .optional_attention_bias = true,
     .qk_norm = true,
     .window = 4096,
     .wide_qk_norm = true,
     .rope_theta = 500000,
     .post_norms = true,
     .mostly_windowed = true},
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .always_windowed = true,
     .optional_rotary_part = true,
     .fused_rows = true,
     .fixed = R"({"attention_bias": false, "mlp_bias": false, "lm_head_bias": false})"},
    {.architecture = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .optional_qkv_bias = true,
     .mixture = &kQwen2Moe},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .optional_attention_bias = true,
     .qk_norm = true,
     .mixture = &kQwen3Moe},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .always_windowed = true,
     .rope_theta = 1e6,
     .mixture = &kMixtral},
    {.architecture = "OlmoeForCausalLM",
     .model_type = "olmoe",
     .optional_attention_bias = true,
     .qk_norm = true,
     .wide_qk_norm = true,
     .clips_qkv = true,
     .mixture = &kOlmoe},
    {.architecture = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .optional_attention_bias = true,
     .optional_qk_norm = true,
     .output_bias = false,
     .rotary_part = 0.5,
     .optional_rotary_part = true,
     .mixture = &kGlm4Moe},
    {.architecture = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .optional_attention_bias = true,
     .attention_bias = true,
     .window = 128,
     .alternating = true,
     .head_dim = 64,
     .rope_theta = 150000,
     .needs_rope_scaling = true,
     .sinks = true,
     .mixture = &kGptOss},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

// By "architectures". Where that is missing, null or empty, as a configuration has it that was saved without
// a model, by "model_type", from which transformers' AutoModelForCausalLM finds the same classes.
absl::StatusOr<Family> FamilyOf(const Json& json, std::string_view file) {
  const auto architectures = json.find("architectures");
  const auto type = json.find("model_type");
  const bool by_type = architectures == json.end() || architectures->empty();  // null is empty, too
  if (by_type
          ? type == json.end() || !type->is_string()
          : !architectures->is_array() || architectures->size() != 1 || !(*architectures)[0].is_string()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"architectures\" must be a list of one name{}", file,
                    by_type ? ", or \"model_type\" must be given in its place" : ""));
  }
  const Json& name = by_type ? *type : (*architectures)[0];
  std::string known;
  for (const Family& family : kFamilies) {
    const std::string_view own = by_type ? family.model_type : family.architecture;
    if (own == name.get_ref<const std::string&>()) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", own);
  }
  return absl::InvalidArgumentError(fmt::format("{}: unknown {} {}: Baton runs {}", file,
                                                by_type ? "model_type" : "architecture", Shown(name), known));
}

}  // namespace baton::model
