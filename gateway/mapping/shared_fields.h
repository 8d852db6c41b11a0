// Members that several APIs have, OpenAI's and Anthropic's, each read in one place. INVALID_ARGUMENT names
// the member. Pure functions, any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/base/status.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

template <typename T, typename Set>
absl::Status Copy(absl::StatusOr<std::optional<T>> value, Set set) {
  BATON_RETURN_IF_ERROR(value.status());
  if (value->has_value()) set(**value);
  return absl::OkStatus();
}

// top_p of baton.v1, which is above 0: with 0 the likeliest token alone is left.
float TopP(double value);

// temperature, top_p, penalties, logit_bias, seed; and vLLM's top_k, min_p, repetition_penalty.
absl::Status ReadSampling(JsonObject& body, v1::SamplingParams* sampling);

// auto, none, required: the word of tool_choice.
absl::StatusOr<v1::ToolChoice::Mode> ToolModeOf(const JsonObject& body, const std::string& word);

// The member `name`: "none", or how much it thinks, and that it does.
absl::Status ReadEffort(JsonObject& of, std::string_view name, v1::ChatRequest* request);
// vLLM's chat_template_kwargs.
absl::Status ReadTemplateArguments(JsonObject& body, v1::ChatRequest* request);

// Members that would change the answer's meaning; null, false and an empty list ask for nothing.
absl::Status RefuseForeign(JsonObject& body, std::initializer_list<std::string_view> names);
// Members that the servers of vLLM, SGLang and llama.cpp have and that are not here, of all of these APIs. A
// value that is the default of those servers asks for nothing.
absl::Status RefuseUnserved(JsonObject& body);

// The form of an answer in the words of Anthropic's and Ollama's APIs, whose bodies these are not.
absl::Status RefuseForms(JsonObject& body);

// vLLM's skip_special_tokens.
absl::Status ReadSpecialTokens(JsonObject& body, v1::OutputOptions* output);
// Its thinking_token_budget and include_reasoning; enable_thinking, and DeepSeek's and GLM's thinking.type.
absl::Status ReadThinkingExtras(JsonObject& body, v1::ChatRequest* request);

// How answers are drafted, in the words of the workers' flag: speculation.
absl::Status ReadSpeculation(JsonObject& body, v1::RequestOptions* options);

// The service tiers that ask for nothing.
absl::Status ReadServiceTier(JsonObject& body, std::initializer_list<std::string_view> served);

}  // namespace baton::gateway
