#include "text/config/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "common/base/status.h"
#include "text/config/bounds.h"

namespace baton::model {
namespace {

struct RopeTypeName {
  std::string_view name;
  RopeScaling::Type type;
};
constexpr RopeTypeName kRopeTypes[] = {
    {"default", RopeScaling::Type::kNone},    {"linear", RopeScaling::Type::kLinear},
    {"dynamic", RopeScaling::Type::kDynamic}, {"yarn", RopeScaling::Type::kYarn},
    {"llama3", RopeScaling::Type::kLlama3},   {"longrope", RopeScaling::Type::kLongRope},
    {"su", RopeScaling::Type::kLongRope},  // its first name
};

// Fields that any rope type may carry. What a type does not use is ignored, as in transformers; a field that
// is not known is refused, since it may be the one that matters.
constexpr std::string_view kRopeFields[] = {
    "type",         "rope_type",  "rope_theta",       "factor",           "original_max_position_embeddings",
    "beta_fast",    "beta_slow",  "mscale",           "mscale_all_dim",   "low_freq_factor",
    "truncate",     "finetuned",  "high_freq_factor", "attention_factor", "partial_rotary_factor",
    "short_factor", "long_factor"};

bool IsRopeField(const Family& family, std::string_view name) {
  const bool of_queries = name == "llama_4_scaling_beta" || name == "max_position_embeddings";
  return (family.query_scaling && of_queries) || (family.late_qk_norm && name == "alpha") ||
         absl::c_linear_search(kRopeFields, name);
}

// A list of `count` positive numbers.
std::vector<double> ReadFactors(JsonFields& rope, std::string_view name, int count) {
  std::vector<double> factors;
  const Json* const list = rope.Find(name);
  if (list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      const double factor = item.is_number() ? item.get<double>() : 0;
      if (factor > 0 && factor < 1e6) factors.push_back(factor);
    }
    if (list->size() == factors.size() && std::ssize(factors) == count) return factors;
  }
  rope.Refuse(name, fmt::format("must be a list of {} positive numbers", count));
  return std::vector<double>(static_cast<size_t>(count), 1);
}

void ReadRopeFactors(JsonFields& rope, RopeScaling& scaling, int64_t context, int rotary_dim) {
  const JsonFields::Range positive{.low = 0, .low_open = true};
  switch (scaling.type) {
    case RopeScaling::Type::kLongRope: {
      // Its magnitude divides by the logarithm.
      if (scaling.original_context < 2) rope.Refuse("original_max_position_embeddings", "must be above 1");
      const std::vector<double> shorter = ReadFactors(rope, "short_factor", rotary_dim / 2);
      const std::vector<double> longer = ReadFactors(rope, "long_factor", rotary_dim / 2);
      scaling.factors = context > scaling.original_context ? longer : shorter;
      scaling.factor = rope.Number(
          "factor", positive, static_cast<double>(context) / static_cast<double>(scaling.original_context));
      if (rope.Has("attention_factor")) scaling.attention_factor = rope.Number("attention_factor", positive);
      return;
    }
    case RopeScaling::Type::kNone:
      return;
    case RopeScaling::Type::kLinear:
    case RopeScaling::Type::kDynamic:
      scaling.factor = rope.Number("factor", {.low = 1});
      return;
    case RopeScaling::Type::kLlama3:
      scaling.factor = rope.Number("factor", {.low = 1});
      scaling.low_freq_factor = rope.Number("low_freq_factor", positive);
      scaling.high_freq_factor = rope.Number("high_freq_factor", positive);
      if (scaling.high_freq_factor <= scaling.low_freq_factor) {
        rope.Refuse("high_freq_factor", "must be above low_freq_factor");
      }
      return;
    case RopeScaling::Type::kYarn:
      scaling.factor = rope.Number(
          "factor", {.low = 1}, static_cast<double>(context) / static_cast<double>(scaling.original_context));
      scaling.beta_fast = rope.Number("beta_fast", positive, 32);
      scaling.beta_slow = rope.Number("beta_slow", positive, 1);
      scaling.mscale = rope.Number("mscale", {}, 0);
      scaling.mscale_all_dim = rope.Number("mscale_all_dim", {}, 0);
      if (rope.Has("attention_factor")) scaling.attention_factor = rope.Number("attention_factor", positive);
      scaling.truncate = rope.Flag("truncate", true);
      return;
  }
}

// The field of the rope: of OLMo 3's rope_parameters, that of layers without a window. Those with one have
// their theta alone, also beside a rope_scaling.
const Json* RopeOf(JsonFields& fields, const Family& family, const std::string& name, ModelConfig& config) {
  const Json* const json = fields.Find(name);
  if (!family.mostly_windowed) return json;
  config.window_theta = config.rope_theta;
  if (json == nullptr || name != "rope_parameters" || !json->is_object()) return json;
  const auto full = json->find("full_attention"), windowed = json->find("sliding_attention");
  if (json->size() != 2 || full == json->end() || windowed == json->end()) {
    fields.Refuse(name, "must have full_attention and sliding_attention");
    return nullptr;
  }
  JsonFields own(*windowed, fmt::format("config.json: {}: sliding_attention", name));
  const std::string type = own.Text("rope_type", "default");
  if (type != "default") own.Refuse("rope_type", fmt::format("is {}: only default is known", Shown(type)));
  config.window_theta = own.Number("rope_theta", {.low = 1, .low_open = true}, config.rope_theta);
  if (!own.status().ok()) fields.Refuse(name, std::string(own.status().message()));
  return &*full;
}

}  // namespace

std::string_view NameOf(RopeScaling::Type type) {
  for (const RopeTypeName& known : kRopeTypes) {
    if (known.type == type) return known.name;
  }
  return "unknown";
}

// transformers 4 writes rope_theta and rope_scaling, transformers 5 writes both into rope_parameters; where
// an edited file has both, rope_scaling wins, as in transformers.
absl::Status ReadRope(JsonFields& fields, const Family& family, ModelConfig& config) {
  config.rope_theta = fields.Number("rope_theta", {.low = 1, .low_open = true}, family.rope_theta);
  const auto read_part = [&](JsonFields& from, double fallback) {
    const double part = from.Number("partial_rotary_factor", {.low = 0}, fallback);
    const double rotated = part * config.head_dim;
    if (!family.optional_rotary_part && part != 1) {
      from.Refuse("partial_rotary_factor", "other than 1 is not supported");
    } else if (part > 1 || rotated < 2 || static_cast<int>(rotated) % 2 != 0) {
      from.Refuse(
          "partial_rotary_factor",
          fmt::format("is {}, which leaves no even number of {} values to turn", part, config.head_dim));
    } else {
      config.rotary_dim = static_cast<int>(rotated);
    }
    return part;
  };
  const double rotary_part = read_part(fields, family.rotary_part);
  config.rope_scaling.original_context =
      fields.Integer("original_max_position_embeddings", 1, kMaxContext, config.context);
  const std::string name = fields.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const Json* json = RopeOf(fields, family, name, config);
  if (json == nullptr) {
    // transformers takes factors of its own then, of which each release may have others.
    if (family.needs_rope_scaling) fields.Refuse(name, "is missing: set it as the published model has it");
    return absl::OkStatus();
  }

  JsonFields rope(*json, fmt::format("config.json: {}", name));
  BATON_RETURN_IF_ERROR(rope.status());
  for (const auto& [key, value] : json->items()) {
    if (!IsRopeField(family, key) && !value.is_null()) rope.Refuse(key, "is not known");
  }
  const std::string type = rope.Text("rope_type", rope.Text("type", "default"));
  bool known = false;
  for (const RopeTypeName& candidate : kRopeTypes) {
    if (candidate.name != type) continue;
    config.rope_scaling.type = candidate.type;
    known = true;
  }
  if (!known) {
    rope.Refuse("rope_type", fmt::format("is {}: known are default, linear, dynamic, yarn, llama3, longrope",
                                         Shown(type)));
  }
  config.rope_theta = rope.Number("rope_theta", {.low = 1, .low_open = true}, config.rope_theta);
  read_part(rope, rotary_part);
  if (!fields.Has("original_max_position_embeddings")) {
    config.rope_scaling.original_context =
        rope.Integer("original_max_position_embeddings", 1, kMaxContext, config.context);
  }
  if (config.rope_scaling.type == RopeScaling::Type::kLongRope &&
      !fields.Has("original_max_position_embeddings")) {
    rope.Integer("original_max_position_embeddings", 1, kMaxContext);
  }
  if (family.query_scaling) config.query_beta = rope.Number("llama_4_scaling_beta", {.low = 0});
  if (config.rope_scaling.type == RopeScaling::Type::kDynamic && rope.Has("alpha")) {
    // A theta that is stretched once and for all, whatever the length.
    const double alpha = rope.Number("alpha", {.low = 0, .high = 1e9, .low_open = true}),
                 dim = config.head_dim;
    if (dim <= 2) rope.Refuse("alpha", "needs heads of more than 2 values");
    config.rope_theta *= std::pow(alpha, dim / std::max(1.0, dim - 2));
    if (!(config.rope_theta > 1 && config.rope_theta < 1e30)) {
      rope.Refuse("alpha", fmt::format("makes rope_theta {}", config.rope_theta));
    }
    config.rope_scaling.type = RopeScaling::Type::kNone;
  }
  // transformers ignores the field there: its trained length is the context (DECISIONS, N5).
  if (config.rope_scaling.type == RopeScaling::Type::kDynamic) {
    config.rope_scaling.original_context = config.context;
  }
  ReadRopeFactors(rope, config.rope_scaling, config.context, config.rotary_dim);
  return rope.status();
}

}  // namespace baton::model
