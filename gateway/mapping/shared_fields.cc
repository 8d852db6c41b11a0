#include "gateway/mapping/shared_fields.h"

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "common/rpc/speculation_names.h"

namespace baton::gateway {
namespace {

void ToValue(const Json& json, google::protobuf::Value* value) {
  switch (json.type()) {
    case Json::value_t::object:
      value->mutable_struct_value();
      for (const auto& [name, member] : json.items()) {
        ToValue(member, &(*value->mutable_struct_value()->mutable_fields())[name]);
      }
      break;
    case Json::value_t::array:
      value->mutable_list_value();
      for (const Json& member : json) ToValue(member, value->mutable_list_value()->add_values());
      break;
    case Json::value_t::string:
      value->set_string_value(json.get<std::string>());
      break;
    case Json::value_t::boolean:
      value->set_bool_value(json.get<bool>());
      break;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      value->set_number_value(json.get<double>());
      break;
    default:
      value->set_null_value(google::protobuf::NULL_VALUE);
  }
}

}  // namespace

float TopP(double value) {
  return value == 0 ? std::numeric_limits<float>::min() : static_cast<float>(value);
}

absl::Status ReadSampling(JsonObject& body, v1::SamplingParams* sampling) {
  const auto number = [&body](std::string_view name, auto set) {
    return Copy<double>(body.Number(name), set);
  };
  BATON_RETURN_IF_ERROR(
      number("temperature", [&](double x) { sampling->set_temperature(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(number("top_p", [&](double x) { sampling->set_top_p(TopP(x)); }));
  BATON_RETURN_IF_ERROR(number("min_p", [&](double x) { sampling->set_min_p(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(
      number("presence_penalty", [&](double x) { sampling->set_presence_penalty(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(
      number("frequency_penalty", [&](double x) { sampling->set_frequency_penalty(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(number("repetition_penalty",
                               [&](double x) { sampling->set_repetition_penalty(static_cast<float>(x)); }));
  // -1 is vLLM's "all".
  BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole("top_k", -1, kMaxTokens), [&](int64_t k) {
    sampling->set_top_k(static_cast<int32_t>(std::max<int64_t>(0, k)));
  }));
  BATON_RETURN_IF_ERROR(Copy<int64_t>(
      body.Whole("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()),
      [&](int64_t seed) { sampling->set_seed(static_cast<uint64_t>(seed)); }));
  const Json* const bias = body.Find("logit_bias");  // null: absent
  if (bias == nullptr) return absl::OkStatus();
  if (!bias->is_object()) return body.Wrong("logit_bias", "not a JSON object");
  for (const auto& [token, value] : bias->items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(token, &id) || !value.is_number()) {
      return body.Wrong("logit_bias", "not a map from token ids to numbers");
    }
    (*sampling->mutable_logit_bias())[id] = value.get<float>();
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ToolChoice::Mode> ToolModeOf(const JsonObject& body, const std::string& word) {
  if (word == "auto") return v1::ToolChoice::MODE_AUTO;
  if (word == "none") return v1::ToolChoice::MODE_NONE;
  if (word == "required") return v1::ToolChoice::MODE_REQUIRED;
  return body.Wrong("tool_choice", fmt::format("\"{}\" is not one of auto, none and required", word));
}

absl::Status ReadEffort(JsonObject& of, std::string_view name, v1::ChatRequest* request) {
  BATON_ASSIGN_OR_RETURN(const auto effort, of.Text(name));
  if (!effort.has_value()) return absl::OkStatus();
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts)) {
    return of.Wrong(name, fmt::format("not one of {}", fmt::join(kEfforts, ", ")));
  }
  v1::Thinking& thinking = *request->mutable_thinking();
  // Some models think on request alone.
  thinking.set_enabled(*effort != "none");
  if (*effort != "none") thinking.set_effort(*effort);
  return absl::OkStatus();
}

absl::Status ReadTemplateArguments(JsonObject& body, v1::ChatRequest* request) {
  const Json* const variables = body.Find("chat_template_kwargs");  // null: absent
  if (variables == nullptr) return absl::OkStatus();
  if (!variables->is_object()) return body.Wrong("chat_template_kwargs", "not a JSON object");
  for (const auto& [name, value] : variables->items()) {
    if (name == "enable_thinking" && value.is_boolean()) {
      request->mutable_thinking()->set_enabled(value.get<bool>());
    } else {
      ToValue(value,
              &(*request->mutable_conversation()->mutable_template_arguments()->mutable_fields())[name]);
    }
  }
  return absl::OkStatus();
}

absl::Status RefuseForeign(JsonObject& body, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Json* const value = body.Find(name);  // null: absent
    if (value != nullptr && *value != false && !(value->is_array() && value->empty())) {
      return body.Wrong(name, "not served here");
    }
  }
  return absl::OkStatus();
}

absl::Status RefuseUnserved(JsonObject& body) {
  // A field, its value that asks for nothing, and what can be done instead.
  struct Unserved {
    const char* name;
    Json nothing;
    const char* instead = "";
  };
  static const Unserved kUnserved[] = {
      {"min_tokens", 0, ": constrain the answer (structured_outputs), or ask for ignore_eos"},
      {"bad_words", Json::array(), ": give their tokens a logit_bias of -100"},
      {"allowed_token_ids", Json::array(), ": constrain the answer (structured_outputs)"},
      {"prompt_logprobs", false},
      {"truncate_prompt_tokens", false, ": shorten the prompt"},
      {"truncation_side", false, ": shorten the prompt"},
      {"include_stop_str_in_output", false},
      {"documents", Json::array(), ": put them into a message"},
      {"chat_template", false, ": the model's own is used"},
      {"add_special_tokens", true},
      {"use_beam_search", false},
      {"length_penalty", 1},
      {"logits_processors", Json::array()},
      {"return_token_ids", false},
      {"return_tokens_as_token_ids", false},
      {"cache_salt", "", ": tenants' caches are apart by their keys"},
      {"kv_transfer_params", Json::object()},
      {"vllm_xargs", Json::object()},
      {"mm_processor_kwargs", Json::object()},
      {"lora_path", false},
      {"no_stop_trim", false},
      {"return_hidden_states", false},
      // Samplers of llama.cpp, SGLang and others.
      {"typical_p", 1},
      {"tfs_z", 1},
      {"top_a", 0},
      {"top_n_sigma", 0},
      {"mirostat", 0},
      {"mirostat_mode", 0},
      {"dry_multiplier", 0},
      {"xtc_probability", 0},
      {"dynatemp_range", 0},
      {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},
      {"no_repeat_ngram_size", 0},
      {"samplers", Json::array()},
      {"repeat_penalty", 1, ": send repetition_penalty"},
      {"n_predict", -1, ": send max_tokens"},
      {"min_new_tokens", 0, ": constrain the answer (structured_outputs), or ask for ignore_eos"},
      {"max_new_tokens", Json(), ": send max_tokens"},
  };
  for (const Unserved& one : kUnserved) {
    const Json* const value = body.Find(one.name);  // null: absent
    if (value == nullptr || *value == one.nothing) continue;
    // Below a number that asks for nothing, nothing is asked for either.
    if (value->is_number() && one.nothing.is_number() && one.nothing <= 0 && *value < one.nothing) continue;
    const std::string_view name = one.name;
    const Json* const most = body.Find("max_tokens");  // null: absent
    if ((name == "n_predict" || name == "max_new_tokens") && most != nullptr && *most == *value) continue;
    return body.Wrong(one.name, fmt::format("not served here{}", one.instead));
  }
  return absl::OkStatus();
}

absl::Status RefuseForms(JsonObject& body) {
  for (const char* const name : {"output_format", "format"}) {
    const Json* const form = body.Find(name);  // null: absent
    if (form != nullptr && *form != "") return body.Wrong(name, "not served here: send response_format");
  }
  const Json* const config = body.Find("output_config");  // null: absent
  if (config == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*config, "output_config"));
  if (fields.Find("format") == nullptr) return absl::OkStatus();
  return fields.Wrong("format", "not served here: send response_format");
}

absl::Status ReadSpecialTokens(JsonObject& body, v1::OutputOptions* output) {
  BATON_ASSIGN_OR_RETURN(const auto skip, body.Flag("skip_special_tokens"));
  output->set_special_tokens(!skip.value_or(true));
  return absl::OkStatus();
}

absl::Status ReadThinkingExtras(JsonObject& body, v1::ChatRequest* request) {
  BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole("thinking_token_budget", 1, kMaxTokens), [&](int64_t most) {
    request->mutable_thinking()->set_budget_tokens(static_cast<uint32_t>(most));
  }));
  BATON_RETURN_IF_ERROR(Copy<bool>(body.Flag("include_reasoning"), [&](bool shown) {
    if (!shown) request->mutable_thinking()->set_show(v1::Thinking::SHOW_NONE);
  }));
  BATON_RETURN_IF_ERROR(Copy<bool>(body.Flag("enable_thinking"),
                                   [&](bool enabled) { request->mutable_thinking()->set_enabled(enabled); }));
  const Json* const thinking = body.Find("thinking");  // null: absent
  if (thinking == nullptr) return absl::OkStatus();
  if (thinking->is_boolean()) {
    request->mutable_thinking()->set_enabled(thinking->get<bool>());
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*thinking, "thinking"));
  BATON_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type == "auto") return absl::OkStatus();
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return fields.Wrong("type", "not one of enabled, disabled, adaptive and auto");
  }
  request->mutable_thinking()->set_enabled(type != "disabled");
  if (type == "disabled") {
    fields.Skip({"budget_tokens"});
    return absl::OkStatus();
  }
  return Copy<int64_t>(fields.Whole("budget_tokens", 1, kMaxTokens), [&](int64_t most) {
    request->mutable_thinking()->set_budget_tokens(static_cast<uint32_t>(most));
  });
}

absl::Status ReadSpeculation(JsonObject& body, v1::RequestOptions* options) {
  BATON_ASSIGN_OR_RETURN(const auto how, body.Text("speculation"));
  if (!how.has_value()) return absl::OkStatus();
  const auto speculation = rpc::SpeculationOf(*how);
  if (!speculation.has_value()) {
    return body.Wrong("speculation", fmt::format("not one of {}", fmt::join(rpc::SpeculationWords(), ", ")));
  }
  options->set_speculation(*speculation);
  return absl::OkStatus();
}

absl::Status ReadServiceTier(JsonObject& body, std::initializer_list<std::string_view> served) {
  BATON_ASSIGN_OR_RETURN(const auto tier, body.Text("service_tier"));
  if (!tier.has_value() || std::ranges::find(served, *tier) != served.end()) return absl::OkStatus();
  return body.Wrong("service_tier",
                    fmt::format("not one of {}: requests have no other class here", fmt::join(served, ", ")));
}

}  // namespace baton::gateway
