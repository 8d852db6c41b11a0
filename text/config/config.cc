#include "text/config/config.h"

#include <fmt/format.h>

#include <filesystem>

#include "absl/algorithm/container.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "text/config/bounds.h"
#include "text/config/end_tokens.h"
#include "text/config/family.h"
#include "text/config/gguf_config.h"
#include "text/config/json_fields.h"
#include "text/config/mixture.h"
#include "text/config/model_path.h"
#include "text/config/quantization.h"
#include "text/config/rope_config.h"
#include "text/config/unused_options.h"

namespace baton::model {
namespace {

constexpr char kConfigFile[] = "config.json", kTextConfig[] = "config.json: text_config";
constexpr int64_t kMaxConfigBytes = 16 << 20;

// no_rope_layers, where given, has 0 for a layer without rope; else every no_rope_layer_interval-th has none.
void ReadUnturned(JsonFields& fields, const Family& family, ModelConfig& config) {
  if (!family.unturned_layers) return;
  const int64_t interval = fields.Integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  std::vector<bool> unturned;
  for (int layer = 0; layer < config.layers; ++layer) unturned.push_back((layer + 1) % interval == 0);
  if (fields.Has("no_rope_layers")) {
    const std::vector<int64_t> turned = fields.Integers("no_rope_layers", 0, 1);
    if (std::ssize(turned) < config.layers) {
      fields.Refuse("no_rope_layers", fmt::format("must list {} layers", config.layers));
      return;
    }
    for (size_t layer = 0; layer < unturned.size(); ++layer) unturned[layer] = turned[layer] == 0;
  }
  if (absl::c_linear_search(unturned, true)) config.unturned_layers = std::move(unturned);
}

// layer_types, where given, or else the older pair use_sliding_window and max_window_layers.
void ReadWindows(JsonFields& fields, const Family& family, ModelConfig& config) {
  config.windows.assign(static_cast<size_t>(config.layers), 0);
  int64_t window = 0;
  int first_windowed = 0;
  if (family.always_windowed) {
    // Absent means transformers' default, null means none.
    window = fields.Present("sliding_window") ? fields.Integer("sliding_window", 1, kMaxContext, 0)
                                              : family.window;
  } else if (family.optional_windows && fields.Flag("use_sliding_window", false)) {
    window = fields.Integer("sliding_window", 1, kMaxContext, 0);
    first_windowed = static_cast<int>(fields.Integer("max_window_layers", 0, kMaxLayers, 28));
  } else if (family.unturned_layers && fields.Flag("use_sliding_window", false)) {
    window = fields.Has("sliding_window") ? fields.Integer("sliding_window", 1, kMaxContext) : 0;
  } else if (family.alternating || family.mostly_windowed) {
    window = fields.Present("sliding_window") ? fields.Integer("sliding_window", 1, kMaxContext, 0)
                                              : family.window;
  } else if (!family.optional_windows && family.mixture != nullptr &&
             fields.Flag("use_sliding_window", false)) {
    fields.Refuse("use_sliding_window", fmt::format("is not supported for {}", family.architecture));
  }
  for (int layer = first_windowed; layer < config.layers; ++layer) {
    const bool full = family.alternating       ? layer % 2 != 0
                      : family.mostly_windowed ? layer % 4 == 3
                                               : family.unturned_layers && !config.unturned(layer);
    config.windows[static_cast<size_t>(layer)] = full ? 0 : window;
  }
  const Json* types = fields.Find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || types->size() != config.windows.size()) {
    fields.Refuse("layer_types", fmt::format("must list {} layers", config.layers));
    return;
  }
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const Json& type = (*types)[layer];
    const bool by_layer =
        family.optional_windows || family.alternating || family.mostly_windowed || family.unturned_layers;
    if (type == "full_attention" && by_layer) {
      config.windows[layer] = 0;
    } else if (type == "sliding_attention" && by_layer && window > 0) {
      config.windows[layer] = window;
    } else if (type != (config.windows[layer] == 0 ? "full_attention" : "sliding_attention")) {
      fields.Refuse("layer_types",
                    fmt::format("has {} for layer {}, which {} with this sliding_window can't have",
                                Shown(type), layer, config.architecture));
    }
  }
}

absl::Status ReadShape(JsonFields& fields, const Family& family, ModelConfig& config) {
  config.vocabulary = fields.Integer("vocab_size", 1, kMaxVocabulary);
  config.hidden = fields.Integer("hidden_size", 1, kMaxWidth);
  config.intermediate = fields.Integer("intermediate_size", 1, kMaxWidth);
  config.layers = static_cast<int>(fields.Integer("num_hidden_layers", 1, kMaxLayers));
  config.heads = static_cast<int>(fields.Integer("num_attention_heads", 1, kMaxHeads));
  const bool own_kv_heads = family.kv_heads != 0 && !fields.Present("num_key_value_heads");
  config.kv_heads = static_cast<int>(
      fields.Integer("num_key_value_heads", 1, kMaxHeads, own_kv_heads ? family.kv_heads : config.heads));
  config.context = fields.Integer("max_position_embeddings", 1, kMaxContext);
  config.rms_eps = static_cast<float>(fields.Number("rms_norm_eps", {.low = 0, .high = 1, .low_open = true}));
  if (config.heads % config.kv_heads != 0) {
    fields.Refuse("num_key_value_heads", fmt::format("is {}, which does not divide num_attention_heads {}",
                                                     config.kv_heads, config.heads));
  }
  // Null is hidden_size / num_attention_heads, missing is what the family says.
  const bool by_family = family.head_dim != 0 && !fields.Present("head_dim");
  if (!fields.Has("head_dim") && !by_family && config.hidden % config.heads != 0) {
    fields.Refuse(
        "hidden_size",
        fmt::format("is {}, which num_attention_heads {} does not divide, and head_dim is not given",
                    config.hidden, config.heads));
  }
  BATON_RETURN_IF_ERROR(fields.status());
  const int64_t head_dim = by_family ? family.head_dim : config.hidden / config.heads;
  config.head_dim = static_cast<int>(fields.Integer("head_dim", 2, kMaxHeadDim, head_dim));
  if (int64_t{config.heads} * config.head_dim > kMaxWidth) {
    fields.Refuse("num_attention_heads", fmt::format("times head_dim is {}, more than {}",
                                                     int64_t{config.heads} * config.head_dim, kMaxWidth));
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    fields.Refuse("head_dim",
                  fmt::format("must be even and at most {}, not {}", kMaxHeadDim, config.head_dim));
  }
  return fields.status();
}

void ReadOptions(JsonFields& fields, const Family& family, ModelConfig& config) {
  const std::string_view activation = family.squared_relu ? "relu2" : "silu";
  if (const std::string act = fields.Text("hidden_act", std::string(activation));
      act != activation && (family.squared_relu || act != "swish")) {
    fields.Refuse("hidden_act", fmt::format("is {}: only {} is known", Shown(act), activation));
  }
  config.squared_relu = family.squared_relu;
  config.tied_embeddings = fields.Flag("tie_word_embeddings", family.tied_embeddings);
  const bool attention_bias =
      family.optional_attention_bias && fields.Flag("attention_bias", family.attention_bias);
  config.qkv_bias =
      family.qkv_bias || attention_bias || (family.optional_qkv_bias && fields.Flag("qkv_bias", true));
  config.output_bias = family.optional_output_bias ? fields.Flag("attention_out_bias", false)
                                                   : attention_bias && family.output_bias;
  config.mlp_bias = family.optional_mlp_bias && fields.Flag("mlp_bias", false);
  if (family.optional_bias && fields.Flag("use_bias", false)) {
    config.qkv_bias = config.output_bias = config.mlp_bias = true;
  }
  config.qk_norm = family.qk_norm || (family.optional_qk_norm && fields.Flag("use_qk_norm", false));
  config.wide_qk_norm = family.wide_qk_norm;
  config.sinks = family.sinks;
  config.late_qk_norm = family.late_qk_norm;
  config.paired_rows = family.paired_rows;
  config.post_norms = family.post_norms;
  config.fused_rows = family.fused_rows;
  if (!family.fixed.empty()) {
    const Json fixed = Json::parse(family.fixed);
    for (const auto& [name, value] : fixed.items()) {
      const Json* const given = fields.Find(name);
      if (given != nullptr && *given != value) {
        fields.Refuse(name, fmt::format("is {}: only {} is known for {}", Shown(*given), Shown(value),
                                        family.architecture));
      }
    }
  }
  if (family.multipliers) {
    const JsonFields::Range positive{.low = 1e-6, .high = 1e6};
    config.embedding_multiplier = fields.Number("embedding_multiplier", positive, 1);
    config.attention_multiplier = fields.Number("attention_multiplier", positive, 1);
    config.residual_multiplier = fields.Number("residual_multiplier", positive, 1);
    config.logits_divisor = fields.Number("logits_scaling", positive, 1);
  }
  if (family.clips_qkv && fields.Has("clip_qkv")) fields.Refuse("clip_qkv", "is not supported");
  for (int64_t id : fields.Integers("eos_token_id", 0, config.vocabulary - 1)) {
    config.eos.emplace_back(static_cast<int32_t>(id));
  }
  config.weights_dtype = fields.Text("dtype", fields.Text("torch_dtype", ""));
}

// text_config, with what the file says of the whole model.
absl::StatusOr<Json> TextPart(const Json& whole) {
  const JsonFields fields(whole, kConfigFile);
  const Json* const part = fields.Find("text_config");
  const Json* const type = part == nullptr ? nullptr : JsonFields(*part, kTextConfig).Find("model_type");
  if (type == nullptr || (*type != "mistral" && *type != "ministral3")) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: field \"text_config\" must have a \"model_type\" of mistral or ministral3", kConfigFile));
  }
  Json text = *part;
  text.erase("architectures");
  for (const char* const name :
       {"tie_word_embeddings", "eos_token_id", "dtype", "torch_dtype", "quantization_config"}) {
    if (const Json* const field = fields.Find(name); field != nullptr) text[name] = *field;
  }
  return text;
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::FromJson(const std::string& text) {
  BATON_ASSIGN_OR_RETURN(Json json, ParseJson(text, kConfigFile));
  BATON_RETURN_IF_ERROR(JsonFields(json, kConfigFile).status());
  BATON_ASSIGN_OR_RETURN(Family family, FamilyOf(json, kConfigFile));
  const bool images = family.text_config;
  if (images) {
    BATON_ASSIGN_OR_RETURN(json, TextPart(json));
    BATON_ASSIGN_OR_RETURN(family, FamilyOf(json, kTextConfig));
  }
  JsonFields fields(json, images ? kTextConfig : kConfigFile);
  ModelConfig config;
  config.images_left_out = images;
  config.architecture = family.architecture;
  BATON_RETURN_IF_ERROR(ReadShape(fields, family, config));
  BATON_RETURN_IF_ERROR(ReadRope(fields, family, config));
  ReadUnturned(fields, family, config);
  ReadWindows(fields, family, config);
  ReadOptions(fields, family, config);
  if (family.mixture != nullptr) ReadExperts(fields, *family.mixture, config);
  BATON_RETURN_IF_ERROR(fields.status());
  config.unused = UnusedOptions(fields);
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, QuantizationConfig::FromJson(json));
  const bool mxfp4 = stored.method == QuantizationConfig::Method::kMxfp4;
  if (mxfp4 != config.experts.fused && stored.method != QuantizationConfig::Method::kNone) {
    return absl::InvalidArgumentError(
        fmt::format("{}: quantization_config: {} of {} is not known: mxfp4 goes with GptOssForCausalLM, and "
                    "the others with all else",
                    kConfigFile, stored.Describe(), config.architecture));
  }
  return config;
}

absl::StatusOr<ModelConfig> ModelConfig::Load(const std::string& folder) {
  BATON_RETURN_IF_ERROR(CheckModelPath(folder));
  BATON_ASSIGN_OR_RETURN(const auto file, gguf::OpenIfGguf(folder));
  if (file.has_value()) {
    BATON_ASSIGN_OR_RETURN(const Json json, ConfigOfGguf(file->document));
    absl::StatusOr<ModelConfig> config = FromJson(json.dump());
    if (config.ok()) return config;
    return absl::Status(config.status().code(), fmt::format("{}: its metadata as {}", folder,
                                                            std::string(config.status().message())));
  }
  const std::string path = std::filesystem::path(folder) / kConfigFile;
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConfigBytes));
  absl::StatusOr<ModelConfig> config = FromJson(text);
  if (!config.ok()) {
    // FromJson knows the file's name, not its folder.
    return absl::Status(config.status().code(),
                        fmt::format("{}/{}", folder, std::string(config.status().message())));
  }
  BATON_ASSIGN_OR_RETURN(config->eos, EndTokens(folder, config->eos, config->vocabulary));
  return config;
}

std::string ModelConfig::Canonical() const {
  std::string text;
  const auto line = [&text](std::string_view name, const auto& value) {
    text += fmt::format("{}={}\n", name, value);
  };
  const auto exact = [](double value) { return fmt::format("{:a}", value); };
  line("architecture", architecture);
  line("vocabulary", vocabulary);
  line("hidden", hidden);
  line("intermediate", intermediate);
  line("layers", layers);
  line("heads", heads);
  line("kv_heads", kv_heads);
  line("head_dim", head_dim);
  line("context", context);
  line("rms_eps", exact(double{rms_eps}));
  line("rope_theta", exact(rope_theta));
  line("rope_type", NameOf(rope_scaling.type));
  line("rope_factor", exact(rope_scaling.factor));
  line("rope_original_context", rope_scaling.original_context);
  line("rope_low_freq_factor", exact(rope_scaling.low_freq_factor));
  line("rope_high_freq_factor", exact(rope_scaling.high_freq_factor));
  line("rope_beta_fast", exact(rope_scaling.beta_fast));
  line("rope_beta_slow", exact(rope_scaling.beta_slow));
  line("rope_attention_factor", exact(rope_scaling.attention_factor));
  line("rope_mscale", exact(rope_scaling.mscale));
  line("rope_mscale_all_dim", exact(rope_scaling.mscale_all_dim));
  line("rope_truncate", rope_scaling.truncate ? 1 : 0);
  line("tied_embeddings", tied_embeddings ? 1 : 0);
  line("qkv_bias", qkv_bias ? 1 : 0);
  line("output_bias", output_bias ? 1 : 0);
  line("mlp_bias", mlp_bias ? 1 : 0);
  line("qk_norm", qk_norm ? 1 : 0);
  for (int64_t window : windows) line("window", window);
  // Models without these keep the text, and with it the fingerprint, that they had before these were known.
  if (rotary_dim != head_dim) line("rotary_dim", rotary_dim);
  if (wide_qk_norm) line("wide_qk_norm", 1);
  if (sinks) line("sinks", 1);
  if (squared_relu) line("squared_relu", 1);
  if (embedding_multiplier != 1) line("embedding_multiplier", exact(embedding_multiplier));
  if (attention_multiplier != 0) line("attention_multiplier", exact(attention_multiplier));
  if (residual_multiplier != 1) line("residual_multiplier", exact(residual_multiplier));
  if (logits_divisor != 1) line("logits_divisor", exact(logits_divisor));
  for (const bool still : unturned_layers) line("unturned", still ? 1 : 0);
  if (query_beta != 0) line("query_beta", exact(query_beta));
  if (late_qk_norm) line("late_qk_norm", 1);
  if (paired_rows) line("paired_rows", 1);
  if (post_norms) line("post_norms", 1);
  if (window_theta != 0) line("window_theta", exact(window_theta));
  for (const double factor : rope_scaling.factors) line("rope_long_factor", exact(factor));
  if (experts.experts == 0) return text;
  line("experts", experts.experts);
  line("chosen", experts.chosen);
  line("expert_width", experts.width);
  line("sigmoid", experts.sigmoid ? 1 : 0);
  line("choice_bias", experts.choice_bias ? 1 : 0);
  line("normalize", experts.normalize ? 1 : 0);
  line("expert_scale", exact(experts.scale));
  line("groups", experts.groups);
  line("chosen_groups", experts.chosen_groups);
  line("shared_width", experts.shared_width);
  line("shared_gated", experts.shared_gated ? 1 : 0);
  if (experts.late_softmax) line("late_softmax", 1);
  if (experts.biased) line("biased_experts", 1);
  if (experts.limit != 0) {
    line("swiglu_limit", exact(experts.limit));
    line("swiglu_slope", exact(experts.slope));
  }
  for (const bool has : expert_layers) line("expert_layer", has ? 1 : 0);
  return text;
}

std::string ModelConfig::Digest() const {
  Sha256 sha;
  sha.Update(Canonical());
  const Sha256Digest digest = sha.Finish();
  return std::string(digest.begin(), digest.end());
}

namespace {

// Parameters of all layers, with `used` experts in those that have any.
int64_t LayerParameters(const ModelConfig& c, int64_t used) {
  const int64_t q = int64_t{c.heads} * c.head_dim;
  const int64_t kv = int64_t{c.kv_heads} * c.head_dim;
  int64_t common = c.hidden * (q + 2 * kv) + q * c.hidden + 2 * c.hidden;
  if (c.qkv_bias) common += q + 2 * kv;
  if (c.output_bias) common += c.hidden;
  if (c.sinks) common += c.heads;
  if (c.qk_norm) common += c.wide_qk_norm ? q + kv : 2 * c.head_dim;
  const int64_t inner = c.squared_relu ? 1 : 2;  // gate and up, or up alone
  int64_t dense = (inner + 1) * c.hidden * c.intermediate;
  if (c.mlp_bias) dense += inner * c.intermediate + c.hidden;
  const ExpertConfig& e = c.experts;
  int64_t mixture = e.experts * c.hidden + used * 3 * c.hidden * e.width + 3 * c.hidden * e.shared_width;
  if (e.choice_bias) mixture += e.experts;
  if (e.biased) mixture += e.experts + used * (2 * e.width + c.hidden);
  if (e.shared_gated) mixture += c.hidden;
  int64_t sum = 0;
  for (int l = 0; l < c.layers; ++l) sum += common + (c.has_experts(l) ? mixture : dense);
  return sum;
}

}  // namespace

int64_t ModelConfig::parameters() const {
  return LayerParameters(*this, experts.experts) + hidden + vocabulary * hidden * (tied_embeddings ? 1 : 2);
}

int64_t ModelConfig::active_parameters() const {
  return LayerParameters(*this, experts.chosen) + hidden + vocabulary * hidden * (tied_embeddings ? 1 : 2);
}

std::string ModelConfig::Describe() const {
  const std::string mixture =
      experts.experts == 0 ? "" : fmt::format(", {} of {} experts", experts.chosen, experts.experts);
  return fmt::format("{}, {} layers, hidden {}, {} heads, {} KV heads, vocabulary {}, context {}{}{}",
                     architecture, layers, hidden, heads, kv_heads, vocabulary, context, mixture,
                     images_left_out ? ", images left out" : "");
}

}  // namespace baton::model
