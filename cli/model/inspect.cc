#include "cli/model/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/show/quantity.h"
#include "text/config/rope_config.h"

namespace baton::cli {
namespace {

using tensor::DType;
using Json = nlohmann::ordered_json;

// Precisions of a KV cache on CPU, the default first. (Keys and values may be any two of these; GPUs have
// others.)
struct KvPrecision {
  DType keys, values;

  std::string name() const {
    return keys == values ? std::string(tensor::Name(keys))
                          : fmt::format("{}/{}", tensor::Name(keys), tensor::Name(values));
  }
};
constexpr KvPrecision kKvPrecisions[] = {{DType::kF32, DType::kF32},
                                         {DType::kBF16, DType::kBF16},
                                         {DType::kI8, DType::kI8},
                                         {DType::kI8, DType::kI4},
                                         {DType::kI4, DType::kI4}};

// The size of one head's key or value: "64 head_dim x 4 bytes", "(64 head_dim x 4 bits + a scale of 4
// bytes)".
std::string VectorBytes(int head_dim, DType dtype) {
  if (!tensor::IsScaled(dtype)) return fmt::format("{} head_dim x {} bytes", head_dim, tensor::SizeOf(dtype));
  return fmt::format("({} head_dim x {} bits + a scale of {} bytes)", head_dim, tensor::BitsOf(dtype),
                     sizeof(float));
}

// The sum over keys and values of all heads and layers.
std::string TokenBytes(const model::ModelConfig& c, const KvPrecision& kv) {
  const std::string heads = fmt::format("{} layers x {} KV heads x ", c.layers, c.kv_heads);
  if (kv.keys == kv.values) return fmt::format("2 x {}{}", heads, VectorBytes(c.head_dim, kv.keys));
  return fmt::format("{}({} + {})", heads, VectorBytes(c.head_dim, kv.keys),
                     VectorBytes(c.head_dim, kv.values));
}

std::string Row(const Terminal& terminal, std::string_view label, std::string_view text) {
  return fmt::format("  {}{}\n", Paint(terminal, Style::kBold, fmt::format("{:<14}", label)), text);
}

std::string_view ScalingName(model::RopeScaling::Type type) {
  return type == model::RopeScaling::Type::kNone ? "none" : model::NameOf(type);
}

int64_t TokensIn(int64_t memory, int64_t bytes_per_token) {
  // Memory is given out by the block.
  return memory / (bytes_per_token * kBlockTokens) * kBlockTokens;
}

int WindowedLayers(const model::ModelConfig& config) {
  return static_cast<int>(
      std::count_if(config.windows.begin(), config.windows.end(), [](int64_t window) { return window > 0; }));
}

std::string DescribeShape(const model::ModelConfig& c) {
  std::string text = fmt::format("{} layers, hidden {}, feed-forward {}, {} heads of {}", c.layers,
                                 ShowCount(c.hidden), ShowCount(c.intermediate), c.heads, c.head_dim);
  text += c.kv_heads == c.heads
              ? ", MHA"
              : fmt::format(", {} KV heads (GQA, {} to 1)", c.kv_heads, c.heads / c.kv_heads);
  if (c.qk_norm) text += c.wide_qk_norm ? ", qk-norm of all heads" : ", qk-norm";
  if (c.qkv_bias) text += ", qkv bias";
  return text;
}

std::string DescribeExperts(const model::ModelConfig& c) {
  const model::ExpertConfig& e = c.experts;
  const auto layers = std::count(c.expert_layers.begin(), c.expert_layers.end(), true);
  std::string text = fmt::format("{} of {} chosen, width {}, in {} of {} layers; by {}", e.chosen, e.experts,
                                 ShowCount(e.width), layers, c.layers, e.sigmoid ? "sigmoid" : "softmax");
  if (e.groups > 1) text += fmt::format(" in {} of {} groups", e.chosen_groups, e.groups);
  if (e.shared_width > 0) {
    text += fmt::format(", {} shared one of width {}", e.shared_gated ? "a gated" : "a",
                        ShowCount(e.shared_width));
  }
  return text;
}

std::string DescribeEnds(const model::ModelConfig& c) {
  std::string ids;
  for (const TokenId id : c.eos) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id.value());
  if (ids.empty()) return "no token ends an answer: requests have to say where";
  return fmt::format("answers end at {} {}", c.eos.size() == 1 ? "token" : "tokens", ids);
}

std::string DescribeContext(const model::ModelConfig& c) {
  std::string text = fmt::format("{} tokens, rope theta {:g}", ShowCount(c.context), c.rope_theta);
  if (c.rope_scaling.type == model::RopeScaling::Type::kDynamic) {
    text += ", dynamic scaling, which begins beyond them";
  } else if (c.rope_scaling.type != model::RopeScaling::Type::kNone) {
    text += fmt::format(", {} scaling by {:g}", ScalingName(c.rope_scaling.type), c.rope_scaling.factor);
  }
  if (!c.rope_scaling.factors.empty()) {
    text += c.context > c.rope_scaling.original_context ? ", its long factors" : ", its short factors";
  }
  if (const int windowed = WindowedLayers(c); windowed > 0) {
    const int64_t window = *std::max_element(c.windows.begin(), c.windows.end());
    text += fmt::format("; {} of {} layers see the last {} tokens (KV keeps all tokens of all layers)",
                        windowed, c.layers, ShowCount(window));
  }
  return text;
}

}  // namespace

std::string RenderModel(const std::string& name, const model::ModelSummary& summary, const Budgets& budgets,
                        const Terminal& terminal) {
  const model::ModelConfig& c = summary.config;
  std::string out = fmt::format("{}: {}\n", Paint(terminal, Style::kBold, name), c.architecture);
  out += Row(terminal, "loads",
             summary.loads.ok() ? "yes" : fmt::format("no: {}", std::string(summary.loads.message())));
  out += Row(terminal, "shape", DescribeShape(c));
  if (c.images_left_out) out += Row(terminal, "images", "left out: the model's part for text is what runs");
  if (c.experts.experts > 0) out += Row(terminal, "experts", DescribeExperts(c));
  out += Row(terminal, "vocabulary",
             fmt::format("{} tokens, {} embeddings", ShowCount(c.vocabulary),
                         c.tied_embeddings ? "tied" : "separate"));
  out += Row(terminal, "ends", DescribeEnds(c));
  for (const std::string& why : summary.defaults.left_out) out += Row(terminal, "no default", why);
  if (!c.unused.empty()) {
    out += Row(terminal, "not used",
               fmt::format("{}: transformers does not read it of this model_type, either",
                           fmt::join(c.unused, ", ")));
  }
  out += Row(terminal, "context", DescribeContext(c));
  out += Row(terminal, "parameters",
             fmt::format("{} ({})", ShowMagnitude(static_cast<double>(summary.parameters)),
                         ShowCount(summary.parameters)));
  if (c.experts.experts > 0) {
    out += Row(terminal, "active",
               fmt::format("{} parameters per token ({})",
                           ShowMagnitude(static_cast<double>(summary.active_parameters)),
                           ShowCount(summary.active_parameters)));
  }
  std::string precisions;
  for (const auto& [type, values] : summary.values_by_type) {
    precisions += fmt::format(", {} {}", ShowCount(values), type);
  }
  out += Row(terminal, "weights",
             fmt::format("{} in {} tensors{}", ShowBytes(summary.weight_bytes), ShowCount(summary.tensors),
                         precisions));
  std::string matrices;
  for (const auto& [kept, count] : summary.stored) {
    matrices += fmt::format("{}{} kept as {}", matrices.empty() ? "" : ", ", ShowCount(count), kept);
  }
  if (!summary.quantization.empty()) {
    out += Row(terminal, "quantized", fmt::format("{}; of the matrices {}", summary.quantization, matrices));
    if (!summary.contradiction.empty()) out += Row(terminal, "", summary.contradiction);
  }
  std::string kept, read, expert;
  for (const auto& [precision, value] : model::WeightPrecisions()) {
    kept +=
        fmt::format("{}{} {}", kept.empty() ? "" : ", ", precision, ShowBytes(summary.WeightBytes(value)));
    read +=
        fmt::format("{}{} {}", read.empty() ? "" : ", ", precision, ShowBytes(summary.BytesPerToken(value)));
    expert += fmt::format("{}{} {}", expert.empty() ? "" : ", ", precision,
                          ShowBytes(summary.BytesPerExpert(value)));
  }
  out += Row(terminal, "in memory", fmt::format("with --weights {}", kept));
  out += Row(terminal, "per token", fmt::format("of weights read, one sequence alone: {}", read));
  if (c.experts.experts > 0) {
    out += Row(terminal, "per expert", fmt::format("of one layer: {}", expert));
    for (const int64_t memory : budgets.experts) {
      std::string resident;
      for (const auto& [precision, value] : model::WeightPrecisions()) {
        const int64_t experts = summary.ExpertsIn(memory, value);
        resident += fmt::format("{}{} {} of {} ({:.0f}%, weights {})", resident.empty() ? "" : ", ",
                                precision, ShowCount(experts), ShowCount(summary.Experts()),
                                100.0 * static_cast<double>(experts) / static_cast<double>(summary.Experts()),
                                ShowBytes(summary.WeightBytesWith(memory, value)));
      }
      out += Row(terminal, "", fmt::format("--expert-memory {} holds {}", ShowBytes(memory), resident));
    }
  }
  for (const KvPrecision& precision : kKvPrecisions) {
    const int64_t per_token = summary.KvBytesPerToken(precision.keys, precision.values);
    out += Row(terminal, fmt::format("KV in {}", precision.name()),
               fmt::format("{} = {} bytes per token", TokenBytes(c, precision), ShowCount(per_token)));
    out +=
        Row(terminal, "",
            fmt::format("{} per block of {} tokens, {} per full context", ShowBytes(per_token * kBlockTokens),
                        kBlockTokens, ShowBytes(summary.KvBytesOfContext(precision.keys, precision.values))));
    for (const int64_t memory : budgets.kv) {
      const int64_t tokens = TokensIn(memory, per_token);
      out += Row(terminal, "",
                 fmt::format("{} holds {} tokens, {} full contexts", ShowBytes(memory), ShowCount(tokens),
                             ShowCount(tokens / c.context)));
    }
  }
  return out;
}

Json ModelToJson(const std::string& name, const model::ModelSummary& summary, const Budgets& budgets) {
  const model::ModelConfig& c = summary.config;
  Json json = {{"name", name},
               {"architecture", c.architecture},
               {"loads", summary.loads.ok()},
               {"layers", c.layers},
               {"hidden", c.hidden},
               {"intermediate", c.intermediate},
               {"heads", c.heads},
               {"kv_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"vocabulary", c.vocabulary},
               {"ends", Json::array()},
               {"context", c.context},
               {"rope_theta", c.rope_theta},
               {"rope_scaling", ScalingName(c.rope_scaling.type)},
               {"windowed_layers", WindowedLayers(c)},
               {"qk_norm", c.qk_norm},
               {"tied_embeddings", c.tied_embeddings},
               {"parameters", summary.parameters},
               {"active_parameters", summary.active_parameters},
               {"tensors", summary.tensors},
               {"weight_bytes", summary.weight_bytes},
               {"weights", Json::array()},
               {"kv", Json::array()}};
  for (const TokenId id : c.eos) json["ends"].push_back(id.value());
  for (const auto& [precision, value] : model::WeightPrecisions()) {
    json["weights"].push_back({{"precision", precision},
                               {"bytes", summary.WeightBytes(value)},
                               {"bytes_per_token", summary.BytesPerToken(value)}});
    if (c.experts.experts == 0) continue;
    json["weights"].back()["bytes_per_expert"] = summary.BytesPerExpert(value);
    for (const int64_t memory : budgets.experts) {
      json["weights"].back()["expert_memory"].push_back({{"memory_bytes", memory},
                                                         {"resident", summary.ExpertsIn(memory, value)},
                                                         {"bytes", summary.WeightBytesWith(memory, value)}});
    }
  }
  if (c.experts.experts > 0) {
    json["experts"] = {{"experts", c.experts.experts},
                       {"chosen", c.experts.chosen},
                       {"width", c.experts.width},
                       {"groups", c.experts.groups},
                       {"shared_width", c.experts.shared_width},
                       {"all", summary.Experts()},
                       {"layers", std::count(c.expert_layers.begin(), c.expert_layers.end(), true)}};
  }
  if (!summary.quantization.empty()) {
    json["quantization"] = summary.quantization;
    if (!summary.contradiction.empty()) json["contradiction"] = summary.contradiction;
    for (const auto& [kept, count] : summary.stored) json["matrices"][kept] = count;
  }
  if (!summary.defaults.left_out.empty()) json["no_default"] = summary.defaults.left_out;
  if (!c.unused.empty()) json["not_used"] = c.unused;
  if (!summary.loads.ok()) json["problem"] = std::string(summary.loads.message());
  for (const KvPrecision& precision : kKvPrecisions) {
    const int64_t per_token = summary.KvBytesPerToken(precision.keys, precision.values);
    Json kv = {{"dtype", precision.name()},
               {"key_dtype", tensor::Name(precision.keys)},
               {"value_dtype", tensor::Name(precision.values)},
               {"bytes_per_token", per_token},
               {"bytes_per_block", per_token * kBlockTokens},
               {"bytes_per_context", summary.KvBytesOfContext(precision.keys, precision.values)},
               {"fits", Json::array()}};
    for (const int64_t memory : budgets.kv) {
      kv["fits"].push_back({{"memory_bytes", memory}, {"tokens", TokensIn(memory, per_token)}});
    }
    json["kv"].push_back(std::move(kv));
  }
  return json;
}

}  // namespace baton::cli
