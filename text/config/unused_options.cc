#include "text/config/unused_options.h"

namespace baton::model {
namespace {

// `off`: the number that changes nothing.
struct Option {
  const char* name;
  double off = 0;
};
constexpr Option kOptions[] = {
    {"attention_chunk_size"},
    {"attention_multiplier"},
    {"attn_logit_softcapping"},
    {"clip_qkv"},
    {"dual_chunk_attention_config"},
    {"embedding_multiplier", 1},
    {"final_logit_softcapping"},
    {"logits_scaling", 1},
    {"no_rope_layer_interval"},
    {"no_rope_layers"},
    {"partial_rotary_factor", 1},
    {"query_pre_attn_scalar"},
    {"residual_multiplier", 1},
    {"rotary_pct", 1},
    {"sliding_window"},
    {"use_bidirectional_attention"},
    {"use_qk_norm"},
};

bool IsOn(const Json& value, double off) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != off;
  return !value.empty();
}

}  // namespace

std::vector<std::string> UnusedOptions(const JsonFields& fields) {
  // A window that is switched off by name is no option.
  const Json* const windows = fields.Find("use_sliding_window");
  const bool no_window = windows != nullptr && windows->is_boolean() && !windows->get<bool>();
  std::vector<std::string> unused;
  for (const Option& option : kOptions) {
    const std::string_view name = option.name;
    if (fields.WasRead(name) || (name == "sliding_window" && no_window)) continue;
    const Json* const value = fields.Find(name);
    if (value != nullptr && IsOn(*value, option.off)) unused.emplace_back(name);
  }
  return unused;
}

}  // namespace baton::model
