#include "text/config/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/quote.h"
#include "common/base/status.h"

namespace baton::model {
namespace {

using gguf::Document;

constexpr char kArchitecture[] = "general.architecture";
constexpr char kEmbeddingTensor[] = "token_embd.weight", kHeadTensor[] = "output.weight";
constexpr char kFrequencies[] = "rope_freqs.weight";
// Max of any size; what sizes mean together, ModelConfig checks.
constexpr int64_t kMostOfAnything = int64_t{1} << 31;

struct GgufFamily {
  std::string_view name, architecture;
  bool paired_heads = false;
};
constexpr GgufFamily kGgufFamilies[] = {
    {"llama", "LlamaForCausalLM", true}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};

// Keys of an architecture that are read here.
constexpr std::string_view kReadKeys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "expert_count",
    "expert_used_count",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
};

absl::StatusOr<GgufFamily> GgufFamilyOf(const Document& document) {
  BATON_ASSIGN_OR_RETURN(const std::string name, document.Text(kArchitecture));
  std::string known;
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.name == name) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  }
  return document.Refuse(kArchitecture, fmt::format("is {}: Baton runs {}", Quoted(name), known));
}

// Values under the architecture's name. The first error is kept, and later reads give harmless values.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const Document& document, std::string_view architecture)
      : document_(document), prefix_(std::string(architecture) + ".") {}

  const absl::Status& status() const { return status_; }
  std::string KeyOf(std::string_view name) const { return prefix_ + std::string(name); }
  bool Has(std::string_view name) const { return document_.Has(KeyOf(name)); }

  int64_t Integer(std::string_view name, std::optional<int64_t> fallback = {}) {
    return Kept(document_.Integer(KeyOf(name), 0, kMostOfAnything, fallback), int64_t{1});
  }
  double Number(std::string_view name, std::optional<double> fallback = {}) {
    return Kept(document_.Number(KeyOf(name), fallback), 1.0);
  }
  std::string Text(std::string_view name, std::string fallback) {
    return Kept(document_.Text(KeyOf(name), std::move(fallback)), std::string());
  }
  void Refuse(std::string_view name, std::string_view problem) {
    status_.Update(document_.Refuse(KeyOf(name), problem));
  }
  // A number that is known with one value alone.
  void MustBe(std::string_view name, double value) {
    const double number = Number(name, value);
    if (number != value) Refuse(name, fmt::format("is {}: only {} is known", number, value));
  }

  void RefuseUnknown() {
    for (const auto& [key, value] : document_.metadata()) {
      if (!key.starts_with(prefix_)) continue;
      const std::string_view name = key.substr(prefix_.size());
      if (std::ranges::find(kReadKeys, name) == std::end(kReadKeys)) Refuse(name, "is not known");
    }
  }

 private:
  template <typename T>
  T Kept(absl::StatusOr<T> value, T harmless) {
    if (value.ok()) return *std::move(value);
    status_.Update(value.status());
    return harmless;
  }

  const Document& document_;
  const std::string prefix_;
  absl::Status status_;
};

// Llama 3's scaling with the factors of all its models: by what the frequency of this wavelength is divided.
constexpr double kLowFactor = 1, kHighFactor = 4;
double Llama3Divisor(double wavelength, double factor, double original) {
  const double blend =
      std::clamp((original / wavelength - kLowFactor) / (kHighFactor - kLowFactor), 0.0, 1.0);
  return 1 / ((1 - blend) / factor + blend);
}

// rope_scaling of a tensor of divisors; null if they are all 1.
absl::StatusOr<Json> ScalingOfDivisors(const Document& document, double theta, int64_t head_dim) {
  const gguf::Tensor& tensor = *document.FindTensor(kFrequencies);
  const auto invalid = [&](std::string_view problem) {
    return absl::InvalidArgumentError(
        fmt::format("{}: tensor \"{}\" {}", document.name(), kFrequencies, problem));
  };
  if (tensor.format->id != gguf::kIdF32 || tensor.shape != std::vector<int64_t>{head_dim / 2}) {
    return invalid(fmt::format("is not {} values of f32", head_dim / 2));
  }
  std::vector<float> divisors(static_cast<size_t>(head_dim / 2));
  gguf::ExpandRow(*tensor.format, tensor.bytes, divisors);
  if (!std::ranges::all_of(divisors, [](float x) { return std::isfinite(x) && x >= 1; })) {
    return invalid("holds a divisor of a frequency that is not at least 1");
  }
  const double factor = *std::ranges::max_element(divisors);
  if (factor == 1) return Json();
  const auto wavelength = [&](size_t i) {
    return 2 * std::numbers::pi * std::pow(theta, 2 * static_cast<double>(i) / static_cast<double>(head_dim));
  };
  // A divisor between 1 and the factor tells the original context.
  double original = 8192;
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (divisors[i] <= 1 || divisors[i] >= factor) continue;
    const double blend = (1 / double{divisors[i]} - 1 / factor) / (1 - 1 / factor);
    original = std::round(wavelength(i) * (blend * (kHighFactor - kLowFactor) + kLowFactor));
    break;
  }
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double expected = Llama3Divisor(wavelength(i), factor, original);
    if (!(std::abs(divisors[i] - expected) <= 1e-3 * expected)) {
      return invalid(
          fmt::format("holds {} at {}, where Llama 3's scaling by {} of a context of {} has {}: "
                      "other divisors are not known",
                      divisors[i], i, factor, original, expected));
    }
  }
  return Json{{"rope_type", "llama3"},
              {"factor", factor},
              {"low_freq_factor", kLowFactor},
              {"high_freq_factor", kHighFactor},
              {"original_max_position_embeddings", static_cast<int64_t>(original)}};
}

// rope_scaling, or null.
absl::StatusOr<Json> ScalingOf(const Document& document, ArchitectureKeys& keys, double theta,
                               int64_t head_dim) {
  const std::string type = keys.Text("rope.scaling.type", "none");
  for (const std::string_view name : {"rope.scale_linear", "rope.scaling.attn_factor",
                                      "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    keys.MustBe(name, 1);
  }
  keys.MustBe("rope.scaling.yarn_log_multiplier", 0);
  Json scaling;
  if (type == "linear") {
    scaling = {{"rope_type", "linear"}, {"factor", keys.Number("rope.scaling.factor")}};
  } else if (type == "yarn") {
    scaling = {{"rope_type", "yarn"},
               {"factor", keys.Number("rope.scaling.factor")},
               {"original_max_position_embeddings", keys.Integer("rope.scaling.original_context_length")},
               {"beta_fast", keys.Number("rope.scaling.yarn_beta_fast", 32)},
               {"beta_slow", keys.Number("rope.scaling.yarn_beta_slow", 1)}};
  } else if (type != "none") {
    keys.Refuse("rope.scaling.type", fmt::format("is {}: known are none, linear, yarn", Quoted(type)));
  }
  BATON_RETURN_IF_ERROR(keys.status());
  if (document.FindTensor(kFrequencies) == nullptr) return scaling;
  if (!scaling.is_null()) {
    keys.Refuse("rope.scaling.type",
                fmt::format("is {}, and tensor \"{}\" scales, too: only one is known", type, kFrequencies));
    return keys.status();
  }
  return ScalingOfDivisors(document, theta, head_dim);
}

// Tokens that end an answer.
absl::StatusOr<Json> EndTokens(const Document& document) {
  Json ids = Json::array();
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (!document.Has(key)) continue;
    BATON_ASSIGN_OR_RETURN(const int64_t id, document.Integer(key, 0, kMostOfAnything));
    if (std::find(ids.begin(), ids.end(), Json(id)) == ids.end()) ids.push_back(id);
  }
  return ids;
}

struct NamePair {
  std::string_view gguf, folder;
};
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

}  // namespace

std::string_view GgufArchitectureOf(std::string_view architecture) {
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.architecture == architecture) return family.name;
  }
  return "";
}

absl::StatusOr<Json> ConfigOfGguf(const Document& document) {
  BATON_ASSIGN_OR_RETURN(const GgufFamily family, GgufFamilyOf(document));
  BATON_ASSIGN_OR_RETURN(const int64_t parts, document.Integer("split.count", 0, kMostOfAnything, 1));
  if (parts > 1) {
    return document.Refuse("split.count", fmt::format("is {}: only models in one file are read", parts));
  }
  const gguf::Tensor* const embedding = document.FindTensor(kEmbeddingTensor);
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return absl::InvalidArgumentError(
        fmt::format("{}: tensor \"{}\" is missing, or no matrix", document.name(), kEmbeddingTensor));
  }
  ArchitectureKeys keys(document, family.name);
  keys.RefuseUnknown();
  keys.MustBe("expert_count", 0);
  const int64_t hidden = keys.Integer("embedding_length"), context = keys.Integer("context_length");
  const int64_t heads = keys.Integer("attention.head_count");
  const int64_t head_dim =
      keys.Integer("attention.key_length", heads == 0 ? std::optional<int64_t>() : hidden / heads);
  for (const std::string_view name : {"attention.value_length", "rope.dimension_count"}) {
    const int64_t other = keys.Integer(name, head_dim);
    if (other != head_dim)
      keys.Refuse(name, fmt::format("is {}: only the head's {} is known", other, head_dim));
  }
  // Other programs ignore windows of these architectures, and folders have layers without: not guessed.
  if (const int64_t window = keys.Integer("attention.sliding_window", 0); window != 0 && window < context) {
    keys.Refuse("attention.sliding_window", fmt::format("is {}: windows are not read", window));
  }
  const double theta = keys.Number("rope.freq_base", 10000);
  Json config = {{"architectures", {family.architecture}},
                 {"vocab_size", embedding->shape[0]},
                 {"hidden_size", hidden},
                 {"intermediate_size", keys.Integer("feed_forward_length")},
                 {"num_hidden_layers", keys.Integer("block_count")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", keys.Integer("attention.head_count_kv", heads)},
                 {"head_dim", head_dim},
                 {"max_position_embeddings", context},
                 {"rms_norm_eps", keys.Number("attention.layer_norm_rms_epsilon")},
                 {"rope_theta", theta},
                 {"tie_word_embeddings", document.FindTensor(kHeadTensor) == nullptr},
                 {"attention_bias", document.FindTensor("blk.0.attn_output.bias") != nullptr},
                 {"mlp_bias", document.FindTensor("blk.0.ffn_gate.bias") != nullptr},
                 {"dtype", embedding->format->name}};
  BATON_RETURN_IF_ERROR(keys.status());
  if (head_dim < 2 || head_dim > hidden) {
    keys.Refuse("attention.key_length", fmt::format("is {}, of a hidden size of {}", head_dim, hidden));
    return keys.status();
  }
  BATON_ASSIGN_OR_RETURN(Json scaling, ScalingOf(document, keys, theta, head_dim));
  if (!scaling.is_null()) config["rope_scaling"] = std::move(scaling);
  BATON_ASSIGN_OR_RETURN(config["eos_token_id"], EndTokens(document));
  return config;
}

absl::StatusOr<Json> GenerationOfGguf(const Document& document) {
  Json generation = Json::object();
  constexpr NamePair kNumbers[] = {{"temp", "temperature"},
                                   {"top_p", "top_p"},
                                   {"min_p", "min_p"},
                                   {"penalty_repeat", "repetition_penalty"}};
  for (const NamePair& pair : kNumbers) {
    const std::string key = fmt::format("general.sampling.{}", pair.gguf);
    if (!document.Has(key)) continue;
    BATON_ASSIGN_OR_RETURN(generation[pair.folder], document.Number(key));
  }
  constexpr char kTopK[] = "general.sampling.top_k";
  if (document.Has(kTopK)) {
    BATON_ASSIGN_OR_RETURN(generation["top_k"], document.Integer(kTopK, INT32_MIN, INT32_MAX));
  }
  return generation;
}

std::string FolderName(std::string_view tensor) {
  if (tensor == kEmbeddingTensor) return "model.embed_tokens.weight";
  if (tensor == "output_norm.weight") return "model.norm.weight";
  if (tensor == kHeadTensor) return "lm_head.weight";
  if (tensor == kFrequencies) return "";
  constexpr std::string_view kLayer = "blk.";
  const size_t after_number = tensor.find('.', kLayer.size()), last = tensor.rfind('.');
  if (!tensor.starts_with(kLayer) || after_number == std::string_view::npos || last <= after_number) {
    return std::string(tensor);
  }
  const std::string_view number = tensor.substr(kLayer.size(), after_number - kLayer.size());
  const std::string_view part = tensor.substr(after_number + 1, last - after_number - 1);
  for (const NamePair& pair : kLayerNames) {
    if (pair.gguf == part) {
      return fmt::format("model.layers.{}.{}{}", number, pair.folder, tensor.substr(last));
    }
  }
  return std::string(tensor);
}

int64_t PairedHeads(const Document& document, std::string_view folder_name) {
  const bool q = folder_name.find(".self_attn.q_proj.") != std::string_view::npos;
  const bool k = folder_name.find(".self_attn.k_proj.") != std::string_view::npos;
  const absl::StatusOr<GgufFamily> family = GgufFamilyOf(document);
  if (!family.ok() || !family->paired_heads || (!q && !k)) return 0;
  ArchitectureKeys keys(document, family->name);
  const int64_t heads = keys.Integer("attention.head_count");
  return q ? heads : keys.Integer("attention.head_count_kv", heads);
}

}  // namespace baton::model
